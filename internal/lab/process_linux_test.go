package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/lab"
)

// forEachKind runs a test on hosts of both kinds.
func forEachKind(t *testing.T, test func(t *testing.T, l *lab.Lab)) {
	t.Run("namespaces", func(t *testing.T) { test(t, newLab(t, lab.Options{Hosts: 2})) })
	t.Run("loopback", func(t *testing.T) { test(t, openLab(t, lab.Options{Hosts: 2, Loopback: true})) })
}

func TestEndOfAProcess(t *testing.T) {
	forEachKind(t, func(t *testing.T, l *lab.Lab) {
		h := l.Host(0)
		cases := []struct {
			name, role string
			end        func(*lab.Process) error
			code       int
			fails      bool
		}{
			{"killed", "server", (*lab.Process).Kill, -1, false},
			{"killed while paused", "server", func(p *lab.Process) error { return errors.Join(p.Pause(), p.Kill()) }, -1, false},
			{"terminated", "server", func(p *lab.Process) error { return p.Terminate(patience) }, 0, false},
			{"terminated while paused", "server", func(p *lab.Process) error { return errors.Join(p.Pause(), p.Terminate(patience)) }, 0, false},
			{"terminated in vain", "stubborn", func(p *lab.Process) error { return p.Terminate(50 * time.Millisecond) }, -1, true},
		}
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				p := launch(t, h, c.role, "ready")
				if got := h.Processes(); len(got) != 1 || got[0] != p || p.ExitCode() != -1 {
					t.Errorf("running are %v", got)
				}
				if err := c.end(p); (err != nil) != c.fails {
					t.Error(err)
				}
				<-p.Done()
				if p.ExitCode() != c.code || p.Err() != nil || len(h.Processes()) != 0 {
					t.Errorf("exit code %d, %v, running are %v", p.ExitCode(), p.Err(), h.Processes())
				}
				// Everything may be said to a process that is gone.
				do(t, p.Kill(), p.Terminate(0))
				for _, err := range []error{p.Pause(), p.Resume(), p.Signal(syscall.SIGHUP)} {
					check.Is(t, err, os.ErrProcessDone, "of a process that is gone")
				}
			})
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	forEachKind(t, func(t *testing.T, l *lab.Lab) {
		p := launch(t, l.Host(0), "server", "ready")
		c := connect(t, l.Host(0))
		c.must(t, "awake")
		for range 3 {
			do(t, p.Pause())
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
			if err != nil || !bytes.Contains(stat, []byte(") T ")) {
				t.Errorf("the state is %.40s, %v", stat, err)
			}
			if got, err := c.ask("hello", 50*time.Millisecond); !isTimeout(err) {
				t.Fatalf("a paused process answered %q, %v", got, err)
			}
			do(t, p.Resume())
			if got, err := c.answer(patience); got != "hello" || err != nil {
				t.Fatalf("got %q, %v", got, err)
			}
		}
	})
}

func TestHostsListenOnTheSamePort(t *testing.T) {
	forEachKind(t, func(t *testing.T, l *lab.Lab) {
		c := serveAll(t, l)
		check.Equal(t, c[0].must(t, "ask %s hello", l.Host(1).Addr()), "hello")
	})
}

func TestGroupEndsWithItsLeader(t *testing.T) {
	for name, s := range map[string]syscall.Signal{"the group is killed": 0, "the leader is killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			l := openLab(t, lab.Options{Hosts: 1})
			p := launch(t, l.Host(0), "family", "child")
			child := check.Value(strconv.Atoi(strings.Fields(p.Output())[1])).Must(t)
			if s == 0 {
				do(t, p.Kill())
			} else {
				do(t, p.Signal(s))
				<-p.Done()
			}
			eventually(t, "the child is gone", func() bool { return gone(child) })
		})
	}
}

// gone says whether a process has ended. Its new parent may not yet have taken notice.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

func TestOutput(t *testing.T) {
	l := openLab(t, lab.Options{Hosts: 1})
	h := l.Host(0)
	var more bytes.Buffer
	c := role("fail", h)
	c.Log = &more
	p, err := h.Start(t.Context(), c)
	check.Must(t, err)
	<-p.Done()
	const want = "to standard output\nto standard error\n"
	text, err := os.ReadFile(p.LogFile())
	check.Must(t, err)
	if p.ExitCode() != 7 || p.Output() != want || string(text) != want || more.String() != want || p.Err() != nil {
		t.Errorf("exit code %d, output %q, log %q, more %q, %v", p.ExitCode(), p.Output(), text, more.String(), p.Err())
	}

	// A log that cannot be written leaves the program alone.
	c.Log = brokenWriter{}
	if p, err = h.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.ExitCode() != 7 || p.Output() != want || !errors.Is(p.Err(), errBroken) {
		t.Errorf("exit code %d, output %q, %v", p.ExitCode(), p.Output(), p.Err())
	}
}

var errBroken = errors.New("broken")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestStartFails(t *testing.T) {
	l := openLab(t, lab.Options{Hosts: 1})
	h := l.Host(0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Start(ctx, role("fail", h)); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if _, err := h.Start(t.Context(), lab.Command{Path: "/nowhere"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a program: %v", err)
	}
	if got := h.Processes(); len(got) != 0 {
		t.Errorf("running are %v", got)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	l := openLab(t, lab.Options{Hosts: 2})
	h := l.Host(0)
	for _, role := range []string{"stubborn", "family"} {
		p, err := l.Host(1).Start(t.Context(), lab.Command{Path: "sleep", Args: []string{"1000"}})
		check.Must(t, err)
		do(t, p.Pause())
		launch(t, h, role, "")
	}
	all := append(h.Processes(), l.Host(1).Processes()...)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() { check.NoError(t, l.Close()) })
	}
	group.Wait()
	check.Equal(t, len(all), 4, "processes ran")
	for _, p := range all {
		if !gone(p.Pid()) {
			t.Errorf("process %d runs", p.Pid())
		}
	}
	check.Is(t, check.Err(os.Stat(l.Dir())), os.ErrNotExist, "the folder")
	_, startErr := h.Start(t.Context(), role("fail", h))
	check.Is(t, startErr, lab.ErrClosed, "of a closed lab")
	if err := l.Link(h, nil).Cut(); l.NoLinks() == nil && !errors.Is(err, lab.ErrClosed) {
		t.Errorf("cut in a closed lab: %v", err)
	}
}

func TestFolders(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep %t", keep), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a b")
			l := openLab(t, lab.Options{Hosts: 1, Dir: dir, Keep: keep})
			h := l.Host(0)
			data := filepath.Join(h.Dir(), "data")
			if !strings.HasPrefix(data, dir) || l.Dir() != dir {
				t.Errorf("folders %s and %s", l.Dir(), h.Dir())
			}
			do(t, os.WriteFile(data, nil, 0o600), l.Close())
			if _, err := os.Stat(data); (err == nil) != keep {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

func TestLoopbackHasNoLinks(t *testing.T) {
	l := openLab(t, lab.Options{Hosts: 2, Loopback: true})
	check.Fails(t, l.NoLinks(), "links can be cut")
	_, ruleErr := l.Link(l.Host(0), nil).Rule()
	_, trafficErr := l.Link(l.Host(0), nil).Traffic()
	for i, err := range []error{l.NoLinks(), l.Link(l.Host(0), nil).Cut(), l.HealAll(), ruleErr, trafficErr} {
		check.Is(t, err, lab.ErrNoLinks, i)
	}
}

func TestLabsSideBySide(t *testing.T) {
	const labs = 4
	forEachKind(t, func(t *testing.T, first *lab.Lab) {
		seen := map[string]bool{first.Host(0).Addr(): true}
		var mu sync.Mutex
		var group sync.WaitGroup
		for range labs {
			group.Go(func() {
				l, err := lab.New(lab.Options{Hosts: 2, Loopback: first.NoLinks() != nil})
				if err != nil {
					t.Error(err)
					return
				}
				defer l.Close()
				mu.Lock()
				seen[l.Host(0).Addr()] = true
				mu.Unlock()
				h := l.Host(1)
				listener, err := net.Listen("tcp4", net.JoinHostPort(l.ClientAddr(), "0"))
				if err != nil {
					t.Error(err)
					return
				}
				listener.Close()
				p, err := h.Start(t.Context(), role("server", h))
				if err != nil {
					t.Error(err)
					return
				}
				eventually(t, "the server is ready", func() bool { return strings.HasPrefix(p.Output(), "ready") })
				c, err := dial(h.Addr(), patience)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				if got, err := c.ask("hello", patience); got != "hello" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
			})
		}
		group.Wait()
		check.Equal(t, len(seen), labs+1, "hosts have the addresses", seen)
	})
}

func TestLeftoversOfTheDead(t *testing.T) {
	// Others who make labs now must not find the folder. Whether they or we
	// find the mount is the same.
	t.Setenv("TMPDIR", t.TempDir())
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), roleVariable+"=abandon")
	output, err := c.CombinedOutput()
	if !strings.HasPrefix(string(output), "abandoned") {
		t.Skipf("needs the right to mount: %v: %s", err, output)
	}
	words := strings.Fields(string(output))
	pid, folder := words[1], words[2]
	child, err := strconv.Atoi(pid)
	check.Must(t, err)
	eventually(t, "the process of the dead is gone", func() bool { return gone(child) })
	mounts := func() string {
		text := check.Value(os.ReadFile("/proc/self/mounts")).Must(t)
		return string(text)
	}
	check.Must(t, check.Err(os.Stat(folder)), "nothing is left")
	openLab(t, lab.Options{Hosts: 1})
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) || strings.Contains(mounts(), folder) {
		t.Errorf("of the dead is left: %v\n%s", err, mounts())
	}
}
