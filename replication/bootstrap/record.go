package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
)

// Record is what a node must not forget. It has one place for a promise: the
// node's own proposal is its own promise, giving it up empties the place, and
// with that a proposal that its proposer does not hold is given up for good.
type Record struct {
	Node    event.ID  `json:"node"`
	Promise *Proposal `json:"promise,omitempty"` // that this node is bound to, or proposed itself
	Formed  bool      `json:"formed,omitempty"`  // Promise is this node's own and holds all promises: it is the cluster
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

// Of the file: do not change.
const (
	recordFormat = 1
	tmpSuffix    = ".tmp"
)

// maxRecordBytes is far above what MaxClusterSize members take.
const maxRecordBytes = 64 << 10

type fileStore struct{ path string }

// FileStore keeps the record in a file of that name, as JSON. The folder must
// exist. A crash leaves the old record or the new one, and at worst a file with
// the suffix .tmp, which the next Save writes over.
func FileStore(path string) Store { return fileStore{path} }

func (s fileStore) Load() (Record, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return Record{}, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxRecordBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return Record{}, err
	}
	record, err := decodeRecord(data)
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w", s.path, err)
	}
	return record, nil
}

func decodeRecord(data []byte) (Record, error) {
	if len(data) > maxRecordBytes {
		return Record{}, fmt.Errorf("more than %d bytes", maxRecordBytes)
	}
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
	if err := writeSynced(s.path+tmpSuffix, data); err != nil {
		return err
	}
	if err := os.Rename(s.path+tmpSuffix, s.path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(s.path))
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncFolder makes a rename durable.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync folder %s: %w", path, err)
	}
	return nil
}
