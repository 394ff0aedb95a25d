//go:build linux

// Package main is gotest, which runs go test with its arguments. It prints the result of each
// package as the package ends, where go test waits for those named before it, and a run that a
// signal ends leaves no process, mount or folder.
//
// Everything that tests make lies in one folder, which has the same name in each run
// of a checkout: go test would not take results from its cache if TMPDIR changed.
//
// With "-binary FILE" before its other arguments, tests that start the product start this file, and
// need not build it. The file's sum is in the name that they see: go test takes no result from its
// cache that is of another file.
//
// It finds processes and mounts in /proc, so it is for Linux only.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// graceful bounds the time that go test has to end after a signal.
const graceful = 3 * time.Second

func main() {
	args, binary := os.Args[1:], ""
	if len(args) > 1 && args[0] == "-binary" {
		args, binary = args[2:], args[1]
	}
	code, err := run(binary, args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(binary string, args []string) (code int, err error) {
	adopt()
	work, err := newFolder()
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, endChildren(), work.remove()) }()

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	command := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	command.Env = append(os.Environ(), "TMPDIR="+work.path)
	if binary != "" && os.Getenv("ANNALS_BINARY") == "" {
		given, err := work.take(binary)
		if err != nil {
			return 1, err
		}
		command.Env = append(command.Env, "ANNALS_BINARY="+given)
	}
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := command.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := command.Start(); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() {
		err := report(os.Stdout, out)
		ended <- errors.Join(err, command.Wait())
	}()
	select {
	case err = <-ended:
	case s := <-signals:
		err = errors.Join(fmt.Errorf("ended by a signal: %s", s), stop(command.Process.Pid, ended))
		return 1, err
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode(), nil // go test has said what failed.
	}
	return 0, err
}

// stop ends the process group of go test.
func stop(group int, ended <-chan error) error {
	if err := syscall.Kill(-group, syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(graceful)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return syscall.Kill(-group, syscall.SIGKILL)
	}
}
