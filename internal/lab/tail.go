package lab

import "sync"

// keepOutput is how much of the output of a process stays in memory.
const keepOutput = 256 << 10

// tail keeps the end of what is written to it.
type tail struct {
	mu    sync.Mutex
	ring  []byte
	total int64 // bytes ever written; total % len(ring) is where the next one goes
}

func newTail(size int) *tail { return &tail{ring: make([]byte, size)} }

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	if skip := len(b) - len(t.ring); skip > 0 {
		t.total += int64(skip)
		b = b[skip:]
	}
	for len(b) > 0 {
		k := copy(t.ring[t.total%int64(len(t.ring)):], b)
		t.total += int64(k)
		b = b[k:]
	}
	return n, nil
}

// String returns what is kept, oldest first.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.total % int64(len(t.ring))
	if t.total <= int64(len(t.ring)) {
		return string(t.ring[:t.total])
	}
	return string(t.ring[at:]) + string(t.ring[:at])
}
