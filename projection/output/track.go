package output

import (
	"sync"

	"github.com/zeebo/xxh3"
)

// tracker lists the streams that are emitted to, each once. It remembers the names that are listed
// by a hash, 8 bytes each. Names that come during a write are written together.
type tracker struct {
	o *Output

	mu      sync.Mutex // guards the fields below
	listed  map[uint64]struct{}
	waiting *names // of the next write
	writing bool
}

// names are written together.
type names struct {
	all  []string
	done chan struct{}
	err  error
}

// add returns when a name is listed.
func (t *tracker) add(name string) error {
	t.mu.Lock()
	if _, ok := t.listed[xxh3.HashString(name)]; ok {
		t.mu.Unlock()
		return nil
	}
	if t.waiting == nil {
		t.waiting = &names{done: make(chan struct{})}
	}
	mine := t.waiting
	mine.all = append(mine.all, name)
	if t.writing {
		t.mu.Unlock()
		<-mine.done // Another goroutine writes it.
		return mine.err
	}
	t.writing = true
	for t.waiting != nil {
		n := t.waiting
		t.waiting = nil
		t.mu.Unlock()
		hashes, err := t.write(n.all)
		t.mu.Lock()
		for _, h := range hashes {
			t.listed[h] = struct{}{}
		}
		n.err = err
		close(n.done)
	}
	t.writing = false
	t.mu.Unlock()
	return mine.err
}

// write lists names, those that are not listed, and returns their hashes.
func (t *tracker) write(all []string) ([]uint64, error) {
	stream := t.o.opts.Streams.Emitted()
	if t.listed == nil {
		listed := map[uint64]struct{}{}
		err := t.o.names(t.o.ctx, stream, 0, func(page []string, _ int64) error {
			for _, name := range page {
				listed[xxh3.HashString(name)] = struct{}{}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		t.mu.Lock()
		t.listed = listed
		t.mu.Unlock()
	}
	var hashes []uint64
	var fresh []string
	for _, name := range all { // Each comes from its stream's only worker, so none is there twice.
		h := xxh3.HashString(name)
		if _, ok := t.listed[h]; !ok {
			hashes, fresh = append(hashes, h), append(fresh, name)
		}
	}
	if err := t.o.addNames(t.o.ctx, stream, TypeStreamTracked, fresh); err != nil {
		return nil, err
	}
	return hashes, nil
}
