package eventlog

import (
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
	writerCheckpoint   = "writer.chk"   // end of the log that is known to be durable
	chaserCheckpoint   = "chaser.chk"   // position up to which the log is applied and indexed, durable or not
	epochCheckpoint    = "epoch.chk"    // first position of the newest term, -1 when there is none
	proposalCheckpoint = "proposal.chk" // highest term seen, -1 when there is none
	truncateCheckpoint = "truncate.chk" // -1, or where to cut the log at the next start
)

var checkpointInitial = map[string]int64{
	writerCheckpoint: 0, chaserCheckpoint: 0, epochCheckpoint: -1, proposalCheckpoint: -1, truncateCheckpoint: -1,
}

// checkpoint is one open checkpoint file. It is not safe for concurrent use.
type checkpoint struct {
	file    vfs.File
	value   int64
	written bool // by this process; a value that was read may be in the memory of the system alone
}

func openCheckpoint(fsys vfs.FS, dir, name string) (*checkpoint, error) {
	path := filepath.Join(dir, name)
	initial := checkpointInitial[name]
	data, err := vfs.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		var b [8]byte
		order.PutUint64(b[:], uint64(initial))
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
	return &checkpoint{file: file, value: int64(order.Uint64(data))}, nil
}

// set makes a new value durable.
func (c *checkpoint) set(value int64) error {
	if value == c.value && c.written {
		return nil
	}
	if err := c.put(value); err != nil {
		return err
	}
	return c.sync()
}

// put writes a new value, which readers of the file find from then on.
func (c *checkpoint) put(value int64) error {
	var b [8]byte
	order.PutUint64(b[:], uint64(value))
	if _, err := c.file.WriteAt(b[:], 0); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	c.value, c.written = value, true
	return nil
}

// sync makes the value durable. It may run beside put.
func (c *checkpoint) sync() error {
	if err := c.file.Sync(); err != nil {
		return fmt.Errorf("sync checkpoint: %w", err)
	}
	return nil
}

// checkpoints are the five files of a data directory.
type checkpoints struct {
	writer, chaser, epoch, proposal, truncate *checkpoint
}

func openCheckpoints(fsys vfs.FS, dir string) (_ *checkpoints, err error) {
	c := &checkpoints{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	for _, one := range []struct {
		name string
		to   **checkpoint
	}{{writerCheckpoint, &c.writer}, {chaserCheckpoint, &c.chaser}, {epochCheckpoint, &c.epoch}, {proposalCheckpoint, &c.proposal}, {truncateCheckpoint, &c.truncate}} {
		if *one.to, err = openCheckpoint(fsys, dir, one.name); err != nil {
			return nil, err
		}
	}
	// The chaser's may lie beyond: it is written before what it speaks of is durable. In a restored folder so
	// may the epoch's, if its copy was made later; it is lowered with the cut, or compared with the log.
	if c.epoch.value > c.writer.value && c.truncate.value < 0 {
		return nil, fmt.Errorf("checkpoints of %s contradict each other: writer %d, epoch %d", dir, c.writer.value, c.epoch.value)
	}
	return c, nil
}

// lower makes no checkpoint name anything at or behind a position at which the
// log is about to be cut. The order keeps the epoch's from lying beyond the
// writer's at any moment.
func (c *checkpoints) lower(cut int64) error {
	if c.epoch.value >= cut {
		if err := c.epoch.set(-1); err != nil {
			return err
		}
	}
	if err := c.chaser.set(min(c.chaser.value, cut)); err != nil {
		return err
	}
	return c.writer.set(min(c.writer.value, cut))
}

func (c *checkpoints) close() error {
	var err error
	for _, one := range []*checkpoint{c.writer, c.chaser, c.epoch, c.proposal, c.truncate} {
		if one != nil {
			err = errors.Join(err, one.file.Close())
		}
	}
	return err
}
