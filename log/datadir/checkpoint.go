package datadir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/annalsdb/annals/internal/vfs"
)

// The checkpoint files: 8 bytes each, a little-endian signed number. Eight
// aligned bytes lie in one sector, so that a crash leaves the old value or the
// new one.
const (
	WriterCheckpoint = "writer.chk" // end of the log that is known to be durable
	// position up to which the log is applied and indexed, durable or not
	ChaserCheckpoint   = "chaser.chk"
	EpochCheckpoint    = "epoch.chk"    // first position of the newest term, -1 when there is none
	ProposalCheckpoint = "proposal.chk" // highest term seen, -1 when there is none
	TruncateCheckpoint = "truncate.chk" // -1, or where to cut the log at the next start
)

var InitialCheckpoints = map[string]int64{
	WriterCheckpoint: 0, ChaserCheckpoint: 0, EpochCheckpoint: -1, ProposalCheckpoint: -1, TruncateCheckpoint: -1,
}

// checkpoint is one open checkpoint file. It is not safe for concurrent use.
type checkpoint struct {
	file  vfs.File
	Value int64
	// by this process: there was none, or an empty one, as a copy that was cut short leaves
	made    bool
	written bool // by this process; a value that was read may be in the memory of the system alone
}

func openCheckpoint(fsys vfs.FS, dir, name string) (*checkpoint, error) {
	path := filepath.Join(dir, name)
	initial := InitialCheckpoints[name]
	data, err := vfs.ReadFile(fsys, path)
	made := errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0
	if made {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(initial))
		if err := vfs.WriteFileAtomic(fsys, path, b[:]); err != nil {
			return nil, fmt.Errorf("create checkpoint: %w", err)
		}
		data = b[:]
	} else if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	if len(data) != 8 {
		return nil, fmt.Errorf("checkpoint %s has %d bytes, need 8", path, len(data))
	}
	file, err := fsys.OpenReadWrite(path)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	return &checkpoint{file: file, Value: int64(binary.LittleEndian.Uint64(data)), made: made}, nil
}

// Set makes a new value durable.
func (c *checkpoint) Set(value int64) error {
	if value == c.Value && c.written {
		return nil
	}
	if err := c.Put(value); err != nil {
		return err
	}
	return c.Sync()
}

// Put writes a new value, which readers of the file find from then on.
func (c *checkpoint) Put(value int64) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(value))
	if _, err := c.file.WriteAt(b[:], 0); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	c.Value, c.written = value, true
	return nil
}

// Sync makes the value durable. It may run at the same time as Put.
func (c *checkpoint) Sync() error {
	if err := c.file.Sync(); err != nil {
		return fmt.Errorf("sync checkpoint: %w", err)
	}
	return nil
}

// Checkpoints are the five files of a data directory.
type Checkpoints struct {
	Writer, Chaser, Epoch, Proposal, Truncate *checkpoint
}

func OpenCheckpoints(fsys vfs.FS, dir string) (_ *Checkpoints, err error) {
	c := &Checkpoints{}
	defer vfs.Undo(&err, c.Close)
	for _, one := range []struct {
		name string
		to   **checkpoint
	}{{WriterCheckpoint, &c.Writer}, {ChaserCheckpoint, &c.Chaser}, {EpochCheckpoint, &c.Epoch}, {ProposalCheckpoint, &c.Proposal}, {TruncateCheckpoint, &c.Truncate}} {
		if *one.to, err = openCheckpoint(fsys, dir, one.name); err != nil {
			return nil, err
		}
	}
	// The chaser's may lie beyond: it is written before what it speaks of is durable. In a restored
	// folder so may the epoch's, if its copy was made later; it is lowered with the cut, or
	// compared with the log. Of a writer's that was lost nothing is known: the log tells how far it
	// is.
	if c.Epoch.Value > c.Writer.Value && c.Truncate.Value < 0 && !c.Writer.made {
		return nil, fmt.Errorf("checkpoints of %s contradict each other: writer %d, epoch %d", dir, c.Writer.Value, c.Epoch.Value)
	}
	return c, nil
}

// Lower makes no checkpoint name anything at or after a position at which the log is about to be
// cut. The order keeps the epoch's checkpoint from ever being beyond the writer's.
func (c *Checkpoints) Lower(cut int64) error {
	if c.Epoch.Value >= cut {
		if err := c.Epoch.Set(-1); err != nil {
			return err
		}
	}
	if err := c.Chaser.Set(min(c.Chaser.Value, cut)); err != nil {
		return err
	}
	return c.Writer.Set(min(c.Writer.Value, cut))
}

func (c *Checkpoints) Close() error {
	var err error
	for _, one := range []*checkpoint{c.Writer, c.Chaser, c.Epoch, c.Proposal, c.Truncate} {
		if one != nil {
			err = errors.Join(err, one.file.Close())
		}
	}
	return err
}
