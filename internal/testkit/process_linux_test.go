package testkit

import (
	"runtime"
	"sync"
	"testing"
)

// TestProcessOutlivesThreads: threads of the test end at any time, those that a lab
// used for example. No process may die of that.
func TestProcessOutlivesThreads(t *testing.T) {
	for range 20 {
		p := Launch(t, Command{Path: "/bin/sleep", Args: []string{"600"}})
		var ending sync.WaitGroup
		together := make(chan struct{})
		for range 64 {
			ending.Go(func() {
				runtime.LockOSThread() // It is not unlocked: the thread ends with the goroutine.
				<-together
			})
		}
		close(together)
		ending.Wait()
		select {
		case <-p.exited:
			t.Fatal("the process died with a thread of the test")
		default:
		}
		p.Kill()
	}
}
