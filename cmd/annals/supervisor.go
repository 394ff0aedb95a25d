package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// supervisor is the one that systemd runs: it listens on the socket that NOTIFY_SOCKET names,
// and with WATCHDOG_USEC ends a process that is silent for so long. See sd_notify(3). A nil
// supervisor is none.
type supervisor struct {
	socket net.Conn
	silent time.Duration // 0: it does not watch
}

// variables are those of an environment in the form of os.Environ.
func variables(environ []string) map[string]string {
	values := map[string]string{}
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok {
			values[name] = value
		}
	}
	return values
}

// supervised says whether systemd waits for this process to say that it serves.
func supervised(environ []string) bool { return variables(environ)["NOTIFY_SOCKET"] != "" }

// findSupervisor reads the environment.
func findSupervisor(environ []string) (*supervisor, error) {
	values := variables(environ)
	address := values["NOTIFY_SOCKET"]
	if address == "" {
		return nil, nil
	}
	// A name that begins with @ is one of Linux without a file, which the package net knows too.
	socket, err := net.Dial("unixgram", address)
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	s := &supervisor{socket: socket}
	if pid := values["WATCHDOG_PID"]; pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if us, err := strconv.ParseInt(values["WATCHDOG_USEC"], 10, 64); err == nil && us > 0 {
			s.silent = time.Duration(us) * time.Microsecond
		}
	}
	return s, nil
}

// say sends some assignments. What cannot be sent is lost: the supervisor is gone, or full, and
// a node serves without it.
func (s *supervisor) say(assignments ...string) {
	if s != nil {
		_, _ = s.socket.Write([]byte(strings.Join(assignments, "\n")))
	}
}

// starting names what the node does until it serves.
func (s *supervisor) starting() { s.say("STATUS=starting") }

// serving says that the node serves at an address. Until the returned function ends it, it repeats
// with each sign of life why the node is not ready, as unready says: a node in which that question
// hangs gives no sign.
func (s *supervisor) serving(url string, unready func() string) (end func()) {
	if s == nil {
		return func() {}
	}
	s.say("READY=1", "STATUS=serves on "+url, "MAINPID="+strconv.Itoa(os.Getpid()))
	if s.silent <= 0 {
		return func() {}
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(s.silent / 3)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			status := "STATUS=serves on " + url
			if why := unready(); why != "" {
				status += ", not ready: " + strings.ReplaceAll(why, "\n", " ")
			}
			s.say("WATCHDOG=1", status)
		}
	})
	return sync.OnceFunc(func() {
		close(quit)
		wg.Wait()
	})
}

// stopping says that the node stops. That may take as long as the unit allows.
func (s *supervisor) stopping() { s.say("STOPPING=1", "STATUS=stopping") }

func (s *supervisor) close() {
	if s != nil {
		_ = s.socket.Close() // The process ends.
	}
}
