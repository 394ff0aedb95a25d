package replication_test

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication"
)

// toyData is the toy's event log as catching up sees it. What it holds survives
// whatever node is opened on it, as a disk would.
type toyData struct {
	*toy

	cluster   event.ID // zero: there is no log yet
	directory event.ID
	packed    int  // frames at the beginning that are served as a file
	fromCopy  bool // the next start finds that it comes from a copy

	// torn, if given, is asked before each block of a file is sent.
	torn func(offset int64) error

	tempMu sync.Mutex // guards what follows
	temps  map[string]*toyTemp
	pulled int // frames that others sent and that were new
	known  int // frames that others sent and that were here
	chunks int // files installed
}

func newToyData() *toyData {
	return &toyData{toy: newToy(), directory: event.ID(uuid.New()), temps: map[string]*toyTemp{}}
}

// copied returns what a copy of the data directory has: the log, and nothing of a node.
func (d *toyData) copied() *toyData {
	next := newToyData()
	next.cluster, next.toy = d.cluster, d.crashed(1<<30)
	return next
}

func (d *toyData) deps() replication.Dependencies {
	return replication.Dependencies{FSM: d.toy, Decider: d.toy, Log: d.toy, Data: d, Unfit: d.unfit, ClusterID: d.cluster, DirectoryID: d.directory}
}

func (d *toyData) LastRecord() int64 { return d.Tail().End - 1 }
func (d *toyData) Epoch() int64      { return -1 }

// pulls returns the counts of frames that came from other nodes.
func (d *toyData) pulls() (pulled, known int) {
	d.tempMu.Lock()
	defer d.tempMu.Unlock()
	return d.pulled, d.known
}

// toyBlock is a frame on its way.
type toyBlock struct {
	Tail    event.Tail
	Records []byte
}

// at returns how many frames end at or before a position at which one ends.
func (y *toy) at(end int64, chain event.Chain) (int, error) {
	if end == 0 && chain == (event.Chain{}) {
		return 0, nil
	}
	if end > y.tail().End {
		return 0, event.ErrBeyondEnd
	}
	at := slices.IndexFunc(y.frames, func(f toyFrame) bool { return f.tail.End == end })
	if at < 0 || y.frames[at].tail.Chain != chain {
		return 0, &event.OtherHistory{Position: end}
	}
	return at + 1, nil
}

func (d *toyData) Continue(end int64, chain event.Chain) (replication.Continuation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	from, err := d.at(end, chain)
	if err != nil {
		return nil, err
	}
	k := &toyContinuation{torn: d.torn}
	if from < d.packed {
		content, err := json.Marshal(blocks(d.frames[:d.packed]))
		if err != nil {
			return nil, err
		}
		k.content = content
		k.file = replication.ChunkFile{
			Size: int64(len(content)), End: d.frames[d.packed-1].tail.End,
			Checksum: fmt.Sprintf("%032x", len(content)),
		}
		return k, nil
	}
	k.frames = blocks(d.frames[from:])
	return k, nil
}

func blocks(frames []toyFrame) []toyBlock {
	list := make([]toyBlock, 0, len(frames))
	for _, f := range frames {
		list = append(list, toyBlock{f.tail, f.records})
	}
	return list
}

type toyContinuation struct {
	frames  []toyBlock
	content []byte
	file    replication.ChunkFile
	torn    func(offset int64) error
}

func (k *toyContinuation) File() (replication.ChunkFile, bool) { return k.file, k.content != nil }

// Next returns a few frames at a time, so that catching up takes many blocks.
func (k *toyContinuation) Next(int) (int64, []byte, error) {
	n := min(len(k.frames), 5)
	if n == 0 {
		return 0, nil, io.EOF
	}
	raw, err := json.Marshal(k.frames[:n])
	first := k.frames[0].Tail.End - int64(len(k.frames[0].Records))
	k.frames = k.frames[n:]
	return first, raw, err
}

func (k *toyContinuation) ReadAt(b []byte, offset int64) (int, error) {
	if k.torn != nil {
		if err := k.torn(offset); err != nil {
			return 0, err
		}
	}
	n := copy(b, k.content[offset:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (k *toyContinuation) Close() error { return nil }

// take adds frames of another node's log that this one lacks.
func (d *toyData) take(raw []byte) (fresh, known int, err error) {
	var list []toyBlock
	if err := json.Unmarshal(raw, &list); err != nil {
		return 0, 0, fmt.Errorf("%w: %w", event.ErrBadFrames, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range list {
		tail := d.tail()
		if b.Tail.End <= tail.End {
			if at, err := d.at(b.Tail.End, b.Tail.Chain); err != nil || at == 0 {
				return fresh, known, &event.OtherHistory{Position: b.Tail.End}
			}
			known++
			continue
		}
		if b.Tail.End-int64(len(b.Records)) != tail.End || nextChain(tail.Chain, tail.End, b.Records) != b.Tail.Chain {
			return fresh, known, &event.OtherHistory{Position: tail.End}
		}
		d.append(b.Records, b.Tail.Index, b.Tail.Term)
		fresh++
	}
	return fresh, known, nil
}

func (d *toyData) AppendFrames(_ int64, raw []byte) (int, error) {
	fresh, known, err := d.take(raw)
	d.tempMu.Lock()
	defer d.tempMu.Unlock()
	d.pulled += fresh
	d.known += known
	return fresh, err
}

func (d *toyData) InstallChunk(name string) error {
	d.tempMu.Lock()
	defer d.tempMu.Unlock()
	f, ok := d.temps[name]
	if !ok {
		return fmt.Errorf("no file %s", name)
	}
	if _, _, err := d.take(f.content); err != nil {
		return err
	}
	delete(d.temps, name)
	d.chunks++
	return nil
}

// toyTemp is a chunk file that is being fetched.
type toyTemp struct {
	mu      sync.Mutex // guards content
	content []byte
}

func (d *toyData) CreateTemp() (replication.TempFile, string, error) {
	d.tempMu.Lock()
	defer d.tempMu.Unlock()
	name, f := uuid.NewString(), &toyTemp{}
	d.temps[name] = f
	return f, name, nil
}

func (d *toyData) OpenTemp(name string) (replication.TempFile, error) {
	d.tempMu.Lock()
	defer d.tempMu.Unlock()
	f, ok := d.temps[name]
	if !ok {
		return nil, fmt.Errorf("no file %s", name)
	}
	return f, nil
}

func (d *toyData) DropTemp(name string) error {
	d.tempMu.Lock()
	defer d.tempMu.Unlock()
	delete(d.temps, name)
	return nil
}

func (f *toyTemp) WriteAt(b []byte, offset int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content = slices.Grow(f.content[:offset], len(b))[:offset+int64(len(b))]
	return copy(f.content[offset:], b), nil
}

func (f *toyTemp) Size() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(len(f.content)), nil
}

func (f *toyTemp) Sync() error  { return nil }
func (f *toyTemp) Close() error { return nil }
