package memdb

import "sync"

// Waits counts calls that wait for something to be written.
type Waits struct {
	mu      sync.Mutex // guards what follows
	n       int
	changed *sync.Cond // of mu, signaled when n changes
}

func (w *Waits) during(do func() error) error {
	w.add(1)
	defer w.add(-1)
	return do()
}

func (w *Waits) add(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n += n
	w.changed.Broadcast()
}

// Now is how many calls wait.
func (w *Waits) Now() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// Await returns when so many calls wait.
func (w *Waits) Await(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.n != n {
		w.changed.Wait()
	}
}
