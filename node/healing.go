package node

import (
	"encoding/hex"
	"fmt"

	"github.com/annalsdb/annals/admin/chunklock"
	"github.com/annalsdb/annals/fsm"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/replication"
)

// healer is the log as replacing damaged chunks sees it.
type healer struct {
	log     *eventlog.Log
	machine *fsm.Machine
	lock    func() (*chunklock.Hold, error) // of chunk files, for replacing them
}

var _ replication.Healer = healer{}

func (h healer) Damaged() (list []replication.DamagedChunk) {
	for _, d := range h.log.Damaged() {
		list = append(list, replication.DamagedChunk{File: d.File, First: d.First, Last: d.Last, Err: d.Err})
	}
	return list
}

func (h healer) ChunkFiles(first, last int) (files []replication.ChunkFile, err error) {
	list, err := h.log.ChunkFiles(first, last)
	for i := range list {
		files = append(files, described(&list[i]))
	}
	return files, err
}

func described(f *eventlog.ChunkFile) replication.ChunkFile {
	return replication.ChunkFile{First: f.First, Last: f.Last, Size: f.Size, Checksum: hex.EncodeToString(f.Checksum[:]), End: f.End}
}

func (h healer) OpenChunkFile(first int, checksum string) (replication.ChunkReader, error) {
	var sum [16]byte
	if n, err := hex.Decode(sum[:], []byte(checksum)[:min(len(checksum), 2*len(sum))]); err != nil || n != len(sum) {
		return nil, fmt.Errorf("%q is no checksum", checksum)
	}
	k, err := h.log.OpenChunkFile(first, sum, true)
	if err != nil {
		return nil, err
	}
	return chunkReader{k}, nil
}

type chunkReader struct{ *eventlog.Continuation }

func (r chunkReader) Size() int64 { return r.File().Size }

// Heal holds the lock of chunk files from before this node's redactions are applied to what was
// fetched until it is in use: a redaction in between would be undone.
func (h healer) Heal(d replication.DamagedChunk, names []string) error {
	hold, err := h.lock()
	if err != nil {
		return err
	}
	defer hold.Unlock()
	return h.machine.HealChunk(eventlog.Damage{File: d.File, First: d.First, Last: d.Last}, names)
}
