package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/annalsdb/annals/internal/vfs"
)

// backupNote says on this machine which session a create holds open and what it makes, with a lock
// that is free when its process is gone. A node keeps a session that is not ended for ten minutes,
// and opens four at most: creates that were killed would block the next one.
type backupNote struct {
	Node    string `json:"node"`
	Session string `json:"session"`
	To      string `json:"to"`
	ID      string `json:"id"`
}

const (
	noteSuffix = ".json"
	lockSuffix = ".lock"
)

// NotedSource is a source whose sessions are noted in a folder.
type NotedSource struct {
	Source
	dir  string // empty: no note is made
	note backupNote
	lock io.Closer
}

// NewNotedSource returns a source that notes its sessions in dir, unless that is empty. Node and to
// name the source and the target, id is the backup's.
func NewNotedSource(s Source, dir, node, to, id string) *NotedSource {
	return &NotedSource{Source: s, dir: dir, note: backupNote{Node: node, To: to, ID: id}}
}

// EndLeftovers cleans up after killed creates to the same target: it ends their session at this
// node and removes the files that they wrote.
func (n *NotedSource) EndLeftovers(ctx context.Context, target Target) error {
	if n.dir == "" {
		return nil
	}
	names, err := vfs.OS.List(n.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for killed backups: %w", err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, noteSuffix) {
			continue
		}
		if err := n.endLeftover(ctx, target, filepath.Join(n.dir, name)); err != nil {
			return fmt.Errorf("clean up after a killed backup (%s): %w", name, err)
		}
	}
	return nil
}

func (n *NotedSource) endLeftover(ctx context.Context, target Target, name string) (err error) {
	lockName := strings.TrimSuffix(name, noteSuffix) + lockSuffix
	lock, err := vfs.OS.Lock(lockName)
	if errors.Is(err, vfs.ErrLocked) {
		return nil // at work
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	text, err := vfs.ReadFile(vfs.OS, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // It has just ended.
	}
	if err != nil {
		return err
	}
	var left backupNote
	if json.Unmarshal(text, &left) == nil {
		if left.Node != n.note.Node || left.To != n.note.To {
			return nil // of another create, to other places
		}
		if err := errors.Join(n.Source.End(ctx, left.Session), discard(ctx, target, left.ID)); err != nil {
			return err
		}
	}
	return errors.Join(vfs.OS.Remove(name), vfs.OS.Remove(lockName))
}

// Begin notes the session.
func (n *NotedSource) Begin(ctx context.Context) (s Session, err error) {
	if s, err = n.Source.Begin(ctx); err != nil || n.dir == "" {
		return s, err
	}
	n.note.Session = s.ID
	if err := vfs.OS.MkdirAll(n.dir); err != nil {
		return s, nil // The backup does not depend on it.
	}
	if n.lock, err = vfs.OS.Lock(n.path(lockSuffix)); err != nil {
		return s, nil
	}
	text, err := json.Marshal(n.note)
	if err == nil {
		err = vfs.WriteFileAtomic(vfs.OS, n.path(noteSuffix), text)
	}
	if err != nil {
		n.forget()
	}
	return s, nil
}

func (n *NotedSource) path(suffix string) string {
	return filepath.Join(n.dir, filepath.Base(n.note.Session)+suffix)
}

// forget removes the note. One that stays is of no harm: the next create ends a session that is
// gone.
func (n *NotedSource) forget() {
	_ = vfs.OS.Remove(n.path(noteSuffix))
	_ = vfs.OS.Remove(n.path(lockSuffix))
	_ = n.lock.Close()
	n.lock = nil
}

// End ends the session and removes its note.
func (n *NotedSource) End(ctx context.Context, session string) error {
	err := n.Source.End(ctx, session)
	if n.lock != nil && err == nil {
		n.forget()
	}
	return err
}
