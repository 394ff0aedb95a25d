package redact

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
)

// Files of the data folder. Neither is a part of backups. Do not change.
const (
	// ledgerFile lists what this node redacted, a line of JSON each.
	ledgerFile = "redactions"
	// pendingFile holds the redaction that is running.
	pendingFile = "redactions.pending"
)

// entry is a line of the ledger.
type entry struct {
	Position int64     `json:"position"`
	Stream   uint64    `json:"streamHash"`
	Number   int64     `json:"number"`
	Time     time.Time `json:"time"`
	Metadata bool      `json:"metadata,omitempty"` // redacted as well
}

// Ledger lists the events that this node redacted. Files that come from other nodes are redacted by
// it once more. It is written whole each time, next to the old one: a file of a hundred thousand
// lines takes milliseconds, and a start never finds half a line.
type Ledger struct {
	fsys vfs.FS
	path string

	// guards the fields below; held while the file is written, as it is rarely contended
	mu      sync.Mutex
	entries []entry // by rising position
	lost    bool    // there was no file
}

// OpenLedger reads the ledger of a data folder.
func OpenLedger(fsys vfs.FS, dir string) (*Ledger, error) {
	l := &Ledger{fsys: fsys, path: filepath.Join(dir, ledgerFile)}
	text, err := vfs.ReadFile(fsys, l.path)
	if errors.Is(err, fs.ErrNotExist) {
		l.lost = true
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of redactions: %w", err)
	}
	for line := range bytes.Lines(text) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s is damaged (%w): remove it, and the node rebuilds it from the redacted events of the log", l.path, err)
		}
		l.entries = append(l.entries, e)
	}
	slices.SortFunc(l.entries, byPosition)
	return l, nil
}

func byPosition(a, b entry) int { return cmp.Compare(a.Position, b.Position) }

// Cut forgets the events at a position of the log and after it: the folder was restored.
func (l *Ledger) Cut(at int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := slices.DeleteFunc(slices.Clone(l.entries), func(e entry) bool { return e.Position >= at })
	if len(kept) == len(l.entries) {
		return nil
	}
	return l.write(kept)
}

// Between returns the events from a position up to another, by rising position.
func (l *Ledger) Between(from, to int64) []eventlog.Redaction {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.entries, entry{Position: from}, byPosition)
	var found []eventlog.Redaction
	for ; i < len(l.entries) && l.entries[i].Position < to; i++ {
		e := &l.entries[i]
		found = append(found, eventlog.Redaction{Position: e.Position, Stream: e.Stream, Number: e.Number, Metadata: e.Metadata})
	}
	return found
}

// Lost reports whether the file was not there at the start.
func (l *Ledger) Lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// know adds events, so that they are blanked in files from other nodes before the whole list is
// rebuilt. Until then the list counts as lost.
func (l *Ledger) know(some []entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = l.with(some)
}

// add puts events into the ledger, durably. Those that it has are passed over.
func (l *Ledger) add(some []entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.with(some)
	if slices.Equal(all, l.entries) && !l.lost {
		return nil
	}
	return l.write(all)
}

// with is the list with some more events. The caller holds mu.
func (l *Ledger) with(some []entry) []entry {
	all := slices.Clone(l.entries)
	for _, e := range some {
		i, _ := slices.BinarySearchFunc(all, e, byPosition)
		switch {
		case i == len(all) || all[i].Position != e.Position:
			all = slices.Insert(all, i, e)
		case all[i].Stream != e.Stream || all[i].Number != e.Number:
			// Of an earlier life of the folder.
			all[i] = e
		case e.Metadata:
			all[i].Metadata = true
		}
	}
	return all
}

// write replaces the file. The caller holds mu.
func (l *Ledger) write(all []entry) error {
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for i := range all {
		if err := lines.Encode(&all[i]); err != nil {
			return fmt.Errorf("write the list of redactions: %w", err)
		}
	}
	if err := vfs.WriteFileAtomic(l.fsys, l.path, text.Bytes()); err != nil {
		return fmt.Errorf("write the list of redactions: %w", err)
	}
	l.entries, l.lost = all, false
	return nil
}
