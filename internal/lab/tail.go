package lab

import "sync"

// keepOutput is how much of the output of a process stays in memory.
const keepOutput = 256 << 10

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	size int
	kept []byte // up to twice the size
}

func newTail(size int) *tail { return &tail{size: size} }

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b[max(0, len(b)-t.size):]...)
	if len(t.kept) > 2*t.size {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-t.size:]...)
	}
	return len(b), nil
}

// String returns what is kept, oldest first.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept[max(0, len(t.kept)-t.size):])
}
