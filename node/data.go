package node

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/annalsdb/annals/admin/chunklock"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/fsm"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/replication"
)

// data is the log as catching up, and replacing damaged chunks, see it. Data from other nodes goes
// through the state machine, so that it never meets an entry that is being applied.
type data struct {
	log     *eventlog.Log
	machine *fsm.Machine
	lock    func() (*chunklock.Hold, error) // of chunk files, for replacing them
}

var (
	_ replication.Data   = data{}
	_ replication.Healer = data{}
)

func (d data) LastRecord() int64 {
	page, err := d.log.Reads.ReadAll(event.AllRead{From: event.End, Count: 1, Backward: true})
	if err != nil || len(page.Events) == 0 {
		return -1
	}
	return page.Events[0].Position
}

func (d data) Epoch() int64 { return d.log.EpochPosition() }

func (d data) Continue(end int64, chain event.Chain) (replication.Continuation, error) {
	c, err := d.log.Transfer.Continue(end, chain)
	if err != nil {
		return nil, err
	}
	return continuation{c}, nil
}

func (d data) AppendFrames(first int64, raw []byte) (int, error) {
	return d.machine.AppendFrames(first, raw)
}

func (d data) InstallChunk(name string) error {
	hold, err := d.lock()
	if err != nil {
		return err
	}
	defer hold.Unlock()
	return d.machine.InstallChunk(name)
}

func (d data) CreateTemp() (replication.TempFile, string, error) { return d.log.Transfer.CreateTemp() }

func (d data) OpenTemp(name string) (replication.TempFile, error) {
	return d.log.Transfer.OpenTemp(name)
}

func (d data) DropTemp(name string) error { return d.log.Transfer.DropTemp(name) }

// continuation translates the log's description of its files.
type continuation struct{ *eventlog.Continuation }

func (c continuation) File() (file replication.ChunkFile, ok bool) {
	f := c.Continuation.File()
	if f == nil {
		return file, false
	}
	return described(f), true
}

func (c continuation) Next(most int) (int64, []byte, error) {
	b, err := c.Continuation.Next(most)
	return b.First, b.Raw, err
}

func (d data) Damaged() (list []replication.DamagedChunk) {
	for _, one := range d.log.Health.Damaged() {
		list = append(list, replication.DamagedChunk{File: one.File, First: one.First, Last: one.Last, Err: one.Err})
	}
	return list
}

func (d data) ChunkFiles(first, last int) (files []replication.ChunkFile, err error) {
	list, err := d.log.Transfer.ChunkFiles(first, last)
	for i := range list {
		files = append(files, described(&list[i]))
	}
	return files, err
}

func described(f *eventlog.ChunkFile) replication.ChunkFile {
	return replication.ChunkFile{First: f.First, Last: f.Last, Size: f.Size, Checksum: hex.EncodeToString(f.Checksum[:]), End: f.End}
}

func (d data) OpenChunkFile(first int, checksum string) (replication.ChunkReader, error) {
	var sum [16]byte
	if n, err := hex.Decode(sum[:], []byte(checksum)[:min(len(checksum), 2*len(sum))]); err != nil || n != len(sum) {
		return nil, fmt.Errorf("%q is not a checksum", checksum)
	}
	k, err := d.log.Transfer.OpenChunkFile(first, sum, true)
	if err != nil {
		return nil, err
	}
	return chunkReader{k}, nil
}

type chunkReader struct{ *eventlog.Continuation }

func (r chunkReader) Size() int64 { return r.File().Size }

// Heal holds the lock of chunk files from before this node's redactions are applied to what was
// fetched until it is in use: a redaction in between would be undone.
func (d data) Heal(damaged replication.DamagedChunk, names []string) error {
	hold, err := d.lock()
	if err != nil {
		return err
	}
	defer hold.Unlock()
	return d.machine.HealChunk(eventlog.Damage{File: damaged.File, First: damaged.First, Last: damaged.Last}, names)
}

func (d data) Mend(damaged replication.DamagedChunk) (replication.Mending, error) {
	m, err := d.log.Transfer.Mend(eventlog.Damage{File: damaged.File, First: damaged.First, Last: damaged.Last})
	if err != nil {
		return nil, err
	}
	return mending{m, d}, nil
}

// mending is a damaged chunk file that is put together again.
type mending struct {
	*eventlog.Mending
	data data
}

func (m mending) Holes() []replication.Span {
	spans := m.Mending.Holes()
	list := make([]replication.Span, 0, len(spans))
	for _, s := range spans {
		list = append(list, replication.Span(s))
	}
	return list
}

func (m mending) Anchors() []replication.Anchor {
	anchors := m.Mending.Anchors()
	list := make([]replication.Anchor, 0, len(anchors))
	for _, a := range anchors {
		list = append(list, replication.Anchor(a))
	}
	return list
}

func (m mending) Fill(s replication.Span, raw []byte) error {
	return m.Mending.Fill(eventlog.Span(s), raw)
}

// Finish holds the lock of chunk files for the reason that Heal does.
func (m mending) Finish() error {
	hold, err := m.data.lock()
	if err != nil {
		return err
	}
	defer hold.Unlock()
	return m.data.machine.FinishMending(m.Mending)
}

func (d data) Salvage(wanted replication.Wanted, send func(s replication.Span, raw []byte) error) error {
	ranges := make([]eventlog.Span, 0, len(wanted.Ranges))
	for _, s := range wanted.Ranges {
		ranges = append(ranges, eventlog.Span(s))
	}
	anchors := make([]eventlog.Anchor, 0, len(wanted.Anchors))
	for _, a := range wanted.Anchors {
		anchors = append(anchors, eventlog.Anchor(a))
	}
	return d.log.Transfer.Salvage(ranges, anchors, func(s eventlog.Span, raw []byte) error {
		return send(replication.Span(s), raw)
	})
}

// chunksForFetching takes the lock of chunk files for a file that comes from another node. A
// running scavenge has to give way: its plan is about files that are replaced.
func (n *Node) chunksForFetching() (*chunklock.Hold, error) {
	for {
		if hold, err := n.chunks.TryLock(); err == nil {
			return hold, nil
		}
		n.scavenge.runs.Interrupt(event.ErrChunksFetched)
		waiting, cancel := context.WithTimeout(n.running, chunkLockPatience)
		hold, err := n.chunks.Lock(waiting)
		cancel()
		if err == nil {
			return hold, nil
		}
		if err := n.running.Err(); err != nil {
			return nil, err
		}
	}
}

// chunkLockPatience is how long a file that comes from another node waits until
// what holds the lock is asked again to make room.
const chunkLockPatience = time.Second
