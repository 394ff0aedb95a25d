package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// Record is what a node must not forget. It has one place for a promise: the
// node's own proposal is its own promise, giving it up empties the place, and
// with that a proposal that its proposer does not hold is given up for good.
type Record struct {
	Node    event.ID  `json:"node"`
	Promise *Proposal `json:"promise,omitempty"` // that this node is bound to, or proposed itself
	// Promise is this node's own and holds all promises: it is the cluster
	Formed bool `json:"formed,omitempty"`
}

// recordFile is a record as it lies on disk: do not change without changing the format.
type recordFile struct {
	Format int `json:"format"`
	Record
}

// Validate reports a record that no node would write.
func (r *Record) Validate() error {
	if r.Node.IsZero() {
		return errors.New("record without a node id")
	}
	if r.Promise == nil {
		if r.Formed {
			return errors.New("record of a cluster formed without a proposal")
		}
		return nil
	}
	if err := r.Promise.Validate(); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if !r.Promise.has(r.Node) || r.Formed && r.Promise.Proposer != r.Node {
		return errors.New("record of a proposal that this node has no part in")
	}
	return nil
}

// Store keeps one Record.
type Store interface {
	// Load returns the record saved last. Without any the error is fs.ErrNotExist.
	Load() (Record, error)

	// Save returns when the record is durable and has replaced the one before.
	// After an error either of the two may be found.
	Save(Record) error
}

// Identify returns the id of the node whose record is in a store. When there
// is none it makes a new one, durable when Identify returns. That comes before
// everything else that a node does: a promise is worth no more than the
// name it was given under.
func Identify(s Store) (event.ID, error) {
	record, err := s.Load()
	if errors.Is(err, fs.ErrNotExist) {
		record = Record{Node: event.ID(uuid.New())}
		err = s.Save(record)
	}
	if err != nil {
		return event.ID{}, fmt.Errorf("identify this node: %w", err)
	}
	return record.Node, nil
}

const recordFormat = 1 // of the file: do not change

// maxRecordBytes is far above what MaxClusterSize members take.
const maxRecordBytes = 64 << 10

type fileStore struct {
	files vfs.FS
	path  string
}

// FileStore keeps the record in a file of that name, as JSON. The folder must
// exist. A crash leaves the old record or the new one, and at worst a file with
// the suffix vfs.TempSuffix, which the next Save writes over.
func FileStore(files vfs.FS, path string) Store { return fileStore{files, path} }

func (s fileStore) Load() (Record, error) {
	info, err := s.files.Stat(s.path)
	if err != nil {
		return Record{}, err
	}
	if info.Size() > maxRecordBytes {
		return Record{}, fmt.Errorf("%s: more than %d bytes", s.path, maxRecordBytes)
	}
	data, err := vfs.ReadFile(s.files, s.path)
	if err != nil {
		return Record{}, err
	}
	record, err := decodeRecord(data)
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w", s.path, err)
	}
	// The name may not be durable yet: a sync failed, or the process was killed before it. What was
	// promised with it is promised again.
	return record, s.files.SyncDir(filepath.Dir(s.path))
}

func decodeRecord(data []byte) (Record, error) {
	var doc recordFile
	if err := json.Unmarshal(data, &doc); err != nil {
		return Record{}, err
	}
	if doc.Format != recordFormat {
		return Record{}, fmt.Errorf("format %d is not known, only %d", doc.Format, recordFormat)
	}
	return doc.Record, doc.Validate()
}

func (s fileStore) Save(record Record) error {
	if err := record.Validate(); err != nil {
		return err
	}
	data, err := json.MarshalIndent(recordFile{Format: recordFormat, Record: record}, "", "  ")
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(s.files, s.path, data)
}
