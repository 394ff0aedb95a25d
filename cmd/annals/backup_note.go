package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/internal/vfs"
)

// backupNote says on this machine which session a create holds open and what it makes, beside a lock
// that is free when its process is gone. A node keeps a session that is not ended for ten minutes, and opens
// four: creates that were killed would keep the next one out.
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

// noting is a source whose sessions are noted.
type noting struct {
	backup.Source
	dir  string // of the notes; empty: none are made
	note backupNote
	lock io.Closer
}

// newNoting returns a source that notes its sessions in the cache folder of the user, if there is one.
func newNoting(s backup.Source, node, to, id string) *noting {
	dir, err := os.UserCacheDir()
	if err == nil {
		dir = filepath.Join(dir, "annals", "backups")
	}
	return &noting{Source: s, dir: dir, note: backupNote{Node: node, To: to, ID: id}}
}

// endLeftovers ends what creates to the same target that were killed have left: the session at this node, and what they had written.
func (n *noting) endLeftovers(ctx context.Context, target backup.Target) error {
	if n.dir == "" {
		return nil
	}
	names, err := filepath.Glob(filepath.Join(n.dir, "*"+noteSuffix))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := n.endLeftover(ctx, target, name); err != nil {
			return fmt.Errorf("end what a killed backup has left (%s): %w", name, err)
		}
	}
	return nil
}

func (n *noting) endLeftover(ctx context.Context, target backup.Target, name string) (err error) {
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
	if errors.Is(err, os.ErrNotExist) {
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
		if err := errors.Join(n.Source.End(ctx, left.Session), backup.Discard(ctx, target, left.ID)); err != nil {
			return err
		}
	}
	return errors.Join(os.Remove(name), os.Remove(lockName))
}

// Begin notes the session.
func (n *noting) Begin(ctx context.Context) (s backup.Session, err error) {
	if s, err = n.Source.Begin(ctx); err != nil || n.dir == "" {
		return s, err
	}
	n.note.Session = s.ID
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		n.dir = ""
		return s, nil // The backup does not depend on it.
	}
	if n.lock, err = vfs.OS.Lock(n.path(lockSuffix)); err != nil {
		n.dir = ""
		return s, nil
	}
	text, err := json.Marshal(n.note)
	if err == nil {
		err = os.WriteFile(n.path(noteSuffix), text, 0o600)
	}
	if err != nil {
		n.forget()
	}
	return s, nil
}

func (n *noting) path(suffix string) string {
	return filepath.Join(n.dir, filepath.Base(n.note.Session)+suffix)
}

// forget removes the note. One that stays is of no harm: the next create ends a session that is gone.
func (n *noting) forget() {
	_ = os.Remove(n.path(noteSuffix))
	_ = os.Remove(n.path(lockSuffix))
	_ = n.lock.Close()
	n.lock = nil
}

// End ends the session and removes its note.
func (n *noting) End(ctx context.Context, session string) error {
	err := n.Source.End(ctx, session)
	if n.lock != nil && err == nil {
		n.forget()
	}
	return err
}
