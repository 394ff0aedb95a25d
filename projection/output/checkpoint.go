package output

import (
	"context"
	"errors"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/projection/position"
)

// Checkpoint is how far a projection came, and the state of its root.
type Checkpoint struct {
	// State and Result are those of the root. Shared is the shared state of a bi-state
	// projection, which, if it is partitioned, is all that its root has.
	State, Result, Shared []byte
	At                    position.Position
	Version               position.Version // that wrote it
	Found                 bool             // of a load: there is one, and it is ours
}

// PartitionState is the state of a partition at a checkpoint.
type PartitionState struct {
	Partition     string
	State, Result []byte // nil: there is none
}

// CheckpointOptions are those of Checkpoints. Store, Name and Version are needed.
type CheckpointOptions struct {
	Store   Store
	Name    string
	Version position.Version
	BiState bool
	Logger  hclog.Logger // nil: nothing is logged
}

// Checkpoints reads and writes the checkpoints of one run of a projection. One goroutine
// loads and saves the root; LoadPartition may be called from any, also during Save.
//
// The states of partitions are written before the root, so after a crash there may be some that are
// ahead of the root's checkpoint. They are known by their position and passed over: the events they
// come from are handled again. As only the last two events of such a stream are seen, a state that
// is ahead must not push out the one before it when another is written; then that one is written
// again, in the same write before the new state.
type Checkpoints struct {
	access
	opts    CheckpointOptions
	streams Streams
	loaded  bool
	last    int64 // number of the last event of the root's stream
	fresh   bool  // the stream has no metadata yet
	meta    int64 // number of the last of its metadata

	mu    sync.Mutex // guards the fields below
	found bool       // there is a checkpoint at at
	at    position.Position
	// during Save: number of the last event of partitions' streams that the root's checkpoint
	// covers
	tails map[string]int64
}

const (
	checkpointMetadata = `{"$maxCount":2,"$acl":{"$r":"$admins","$w":"$admins","$d":"$admins","$mr":"$all","$mw":"$admins"}}`
	checkpointPage     = 8       // events looked through for the last that counts
	checkpointWriters  = 256     // partitions written side by side
	maxTails           = 50_000  // remembered, about 100 bytes each
	largeCheckpoint    = 8 << 20 // bytes, from which on the log says so
)

// NewCheckpoints returns Checkpoints that have not looked at the streams.
func NewCheckpoints(o CheckpointOptions) *Checkpoints {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return &Checkpoints{access: access{store: o.Store}, opts: o, streams: Streams{Projection: o.Name}, last: -1, tails: map[string]int64{}}
}

// Load returns the last checkpoint that is ours. It must be called before the other methods.
func (c *Checkpoints) Load(ctx context.Context) (Checkpoint, error) {
	stream := c.streams.Checkpoint()
	t, err := c.look(ctx, stream)
	if err != nil {
		return Checkpoint{}, err
	}
	c.loaded, c.last, c.meta, c.fresh = true, t.last, t.meta, t.fresh
	for i := range t.events {
		e := &t.events[i]
		at, v, err := position.ParseStored(e.Metadata)
		if e.Type != TypeCheckpoint || err != nil {
			continue
		}
		if !c.opts.Version.IsOurs(v) {
			break // From before a reset, or of an earlier projection of this name.
		}
		p, ok := parseStates(e.Data)
		if !ok {
			return Checkpoint{}, invalidFault(e)
		}
		c.cover(at)
		p.At, p.Version, p.Found = at, v, true
		p.root(c.opts.BiState)
		return p, nil
	}
	return Checkpoint{}, nil
}

// LoadPartition returns the state and result of a partition. It is not found if there is no
// checkpoint that is ours and not ahead of the root's. States that changed since the last Save, or
// are being saved, are the caller's to know.
func (c *Checkpoints) LoadPartition(ctx context.Context, partition string) (p PartitionState, found bool, err error) {
	p.Partition = partition
	if found, _ := c.covers(); !found {
		return p, false, nil // What there is has to be ahead.
	}
	t, err := c.look(ctx, c.streams.PartitionCheckpoint(partition))
	if err != nil {
		return p, false, err
	}
	e := c.covered(t.events)
	if e == nil {
		return p, false, nil
	}
	stored, ok := parseStates(e.Data)
	if !ok {
		return p, false, invalidFault(e)
	}
	p.State, p.Result = stored.State, stored.Result
	return p, true, nil
}

// covers returns up to where the root's checkpoint covers events.
func (c *Checkpoints) covers() (found bool, at position.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found, c.at
}

func (c *Checkpoints) cover(at position.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found, c.at = true, at
}

// covered returns the newest of the events, which come newest first, that the root's checkpoint
// covers; nil: none.
func (c *Checkpoints) covered(events []event.Record) *event.Record {
	found, covered := c.covers()
	if !found {
		return nil
	}
	for i := range events {
		e := &events[i]
		at, v, err := position.ParseStored(e.Metadata)
		if e.Type != TypePartitionCheckpoint || err != nil {
			continue
		}
		if !c.opts.Version.IsOurs(v) {
			return nil
		}
		if !isBehind(at, covered) {
			return e
		}
	}
	return nil
}

// tail is the end of a stream of checkpoints.
type tail struct {
	events []event.Record // the newest first
	last   int64
	meta   int64 // number of the last of its metadata
	fresh  bool  // it has no metadata yet, or was deleted
}

func (c *Checkpoints) look(ctx context.Context, stream string) (t tail, err error) {
	var page event.StreamPage
	err = c.tries(ctx, func() error {
		info, err := c.store.StreamInfo(ctx, stream)
		if err != nil {
			return err
		}
		t = tail{last: info.Last, meta: info.MetaLast, fresh: info.MetaLast < 0 || info.Metadata.SoftDeleted()}
		if !info.Exists() {
			return nil
		}
		page, err = c.store.ReadStream(ctx, event.StreamRead{Stream: stream, From: event.Head, Count: checkpointPage, Backward: true, MaxPayload: pageBytes})
		return err
	})
	if isAbsent(err) || errors.Is(err, event.ErrStreamDeleted) {
		return t, nil
	} else if err != nil {
		return t, storageError("read", stream, err)
	}
	for i := range page.Events {
		e := page.Events[i].Record
		if isThere, err := c.complete(ctx, &e); err != nil {
			return t, err
		} else if isThere {
			t.events = append(t.events, e)
		}
	}
	if len(page.Events) > 0 {
		t.last = max(t.last, page.Events[0].Number)
	}
	return t, nil
}

// Save writes the states of the partitions that changed, then the root. Errors are
// as those of Output.Err. After one that failed nothing more is saved.
func (c *Checkpoints) Save(ctx context.Context, changed []PartitionState, root Checkpoint) error {
	metadata := root.At.AppendJSON(nil, &c.opts.Version)
	if err := c.savePartitions(ctx, changed, metadata); err != nil {
		clear(c.tails) // They may be ahead of the root now.
		return err
	}
	if err := c.saveRoot(ctx, root, metadata); err != nil {
		clear(c.tails)
		return err
	}
	c.cover(root.At)
	return nil
}

func (c *Checkpoints) saveRoot(ctx context.Context, root Checkpoint, metadata []byte) error {
	stream := c.streams.Checkpoint()
	if c.fresh {
		if err := c.write(ctx, metadataWrite(stream, c.meta, []byte(checkpointMetadata)), stream); err != nil {
			return err
		}
		c.fresh = false
	}
	data := appendStates(nil, &root)
	c.warn(stream, data)
	err := c.write(ctx, &event.Write{Stream: stream, ExpectedVersion: c.last, Events: []event.Proposed{
		{ID: newID(), Type: TypeCheckpoint, Flags: event.FlagJSON, Data: data, Metadata: metadata}}}, stream)
	if err != nil {
		return err
	}
	c.last++
	return nil
}

func (c *Checkpoints) warn(stream string, data []byte) {
	if len(data) > largeCheckpoint {
		c.opts.Logger.Warn("a checkpoint is large", logkey.Stream, stream, logkey.Bytes, len(data))
	}
}

// write does a write to a stream of checkpoints, or to that of its metadata.
func (c *Checkpoints) write(ctx context.Context, w *event.Write, stream string) error {
	_, err := c.access.write(ctx, w)
	var other *event.WrongExpectedVersion
	if !errors.As(err, &other) {
		if err != nil {
			return writeError(stream, err)
		}
		return nil
	}
	// A write that a run before this one gave up may arrive late: then all is well once this one
	// begins again.
	t, lookErr := c.look(ctx, stream)
	if lookErr != nil {
		return lookErr
	}
	if w.Stream != stream || len(t.events) > 0 && c.isOurs(&t.events[0]) {
		return restart(err)
	}
	return faultf("Checkpoint stream `%s` has been written to from the outside", stream)
}

func (c *Checkpoints) isOurs(e *event.Record) bool {
	_, v, err := position.ParseStored(e.Metadata)
	return (e.Type == TypeCheckpoint || e.Type == TypePartitionCheckpoint) && err == nil && c.opts.Version.IsOurs(v)
}
