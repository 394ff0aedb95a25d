package lab

import (
	"context"
	"runtime"

	"golang.org/x/sys/unix"
)

// thread runs functions, one after the other, on a thread of the operating system of its own. A
// namespace that is entered there holds for these functions alone. A process that is started there
// is killed when the thread ends.
type thread struct {
	calls chan func()
	quit  chan struct{}
	ended chan struct{}
}

func startThread() *thread {
	t := &thread{calls: make(chan func()), quit: make(chan struct{}), ended: make(chan struct{})}
	go t.run()
	return t
}

// run does not unlock the thread when it ends. So the runtime ends the thread as well, and no other
// goroutine inherits the namespace.
func (t *thread) run() {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread cannot end. While it is locked here the next
		// goroutine gets another one.
		moved := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(moved)
			t.serve()
		}()
		<-moved
		runtime.UnlockOSThread()
		return
	}
	t.serve()
}

func (t *thread) serve() {
	defer close(t.ended)
	for {
		select {
		case call := <-t.calls:
			call()
		case <-t.quit:
			return
		}
	}
}

// do runs a function and waits for it. The context bounds the wait for its turn.
func (t *thread) do(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	select {
	case t.calls <- func() { done <- f() }:
		return <-done
	case <-t.ended:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end stops the thread. It is called once.
func (t *thread) end() {
	close(t.quit)
	<-t.ended
}
