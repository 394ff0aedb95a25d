package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/vfs"
)

const (
	backupSessions = "/admin/backup/sessions"
	// keptBackups is how many copies are checked in the end: the newest, and some of those before.
	keptBackups = 3
	// copyLimit bounds how long one file may take.
	copyLimit = 20 * time.Second
)

// backer is an operator who copies a node's database every few seconds and only knows the requests
// for backup sessions: it uses none of our code except the checksums.
type backer struct {
	worker
	files  vfs.FS
	dir    string
	number int
	copies []*databaseCopy
	// rotten says whether bytes of a file changed on a disk.
	rotten func(file string) bool
}

// databaseCopy is a backup that is complete.
type databaseCopy struct {
	dir, node string
	position  int64
	files     map[string]string // checksums of those that never change
	// known is a time: every write acknowledged before it must be in the copy. -1: the node did not
	// lead.
	known int64
}

func newBacker(l *load, files vfs.FS, dir string, rotten func(file string) bool) *backer {
	b := &backer{worker: l.worker(backups), files: files, dir: dir, rotten: rotten}
	l.employ(b.turn)
	return b
}

func (b *backer) turn(ctx context.Context) time.Duration {
	t := b.wander()
	c, err := b.take(ctx, t)
	switch {
	case err != nil:
		b.count.add(ofBackups, "cutShort", 1)
	case c != nil:
		b.count.add(ofBackups, "taken", 1)
		b.copies = append(b.copies, c)
		if n := len(b.copies); n > keptBackups {
			gone := b.rng.IntN(n - 1)
			err = b.files.RemoveAll(b.copies[gone].dir)
			b.copies = slices.Delete(b.copies, gone, gone+1)
		}
	}
	if err != nil && !errors.Is(err, errCut) {
		b.find.add(kindBackup, "%s: %v", t.Name, err)
	}
	return b.pause(1000, 3000)
}

// errCut says that a fault ended a backup.
var errCut = errors.New("the backup was cut short")

// take copies the database of a node.
func (b *backer) take(ctx context.Context, t Target) (_ *databaseCopy, err error) {
	c := &databaseCopy{node: t.Name, known: b.hist.now(), files: map[string]string{}}
	end, err := logEnd(ctx, b.http, t, true)
	if err != nil {
		c.known = -1
		if end, err = logEnd(ctx, b.http, t, false); err != nil {
			return nil, errCut
		}
	}
	a, err := exchange(ctx, b.http, t, client.Request{Method: http.MethodPost, Path: backupSessions, Header: map[string]string{"Accept": client.MediaJSON}}, copyLimit)
	var session backup.Session
	switch {
	case err != nil || a.Status >= 500:
		return nil, errCut
	case a.Status != http.StatusOK || json.Unmarshal(a.Body, &session) != nil || session.ID == "":
		b.find.add(kindAnswer, "POST %s: %s", backupSessions, a)
		return nil, nil
	}
	// A node that dies forgets it anyway.
	defer func() {
		_, _ = exchange(context.WithoutCancel(ctx), b.http, t, client.Request{Method: http.MethodDelete, Path: backupSessions + "/" + session.ID}, b.timeout)
	}()
	if c.position = session.Position; c.position < end {
		return nil, fmt.Errorf("a backup that began when the log ended at %d ends at position %d", end, c.position)
	}
	b.number++
	c.dir = filepath.Join(b.dir, strconv.Itoa(b.number))
	defer vfs.Undo(&err, func() error { return b.files.RemoveAll(c.dir) })
	for _, f := range session.Files {
		if err := b.copy(ctx, t, session.ID, f, c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// copy copies a file, or links the one that an earlier copy has.
func (b *backer) copy(ctx context.Context, t Target, session string, f backup.File, c *databaseCopy) (err error) {
	if strings.Contains(f.Name, "..") || filepath.IsAbs(f.Name) || strings.HasPrefix(f.Name, "raft") {
		return fmt.Errorf("a backup has a file %q", f.Name)
	}
	name := filepath.Join(c.dir, filepath.FromSlash(f.Name))
	if err := b.files.MkdirAll(filepath.Dir(name)); err != nil {
		return err
	}
	b.count.add(ofBackups, "files", 1)
	if f.Complete {
		c.files[f.Name] = f.Checksum
		for _, before := range b.copies {
			if before.node == t.Name && before.files[f.Name] == f.Checksum {
				b.count.add(ofBackups, "filesTakenOver", 1)
				err := vfs.Link(b.files, filepath.Join(before.dir, filepath.FromSlash(f.Name)), name)
				if !errors.Is(err, vfs.ErrNoLinks) {
					return err
				}
			}
		}
	}
	to, err := b.files.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, copyLimit)
	defer cancel()
	path := backupSessions + "/" + session + "/files/" + url.PathEscape(f.Name)
	body, err := b.http.Download(ctx, client.Request{Path: path, Node: t.Base, Login: t.Login}, 0)
	switch refused, ok := errors.AsType[*client.Error](err); {
	case err == nil:
	case ok && refused.Status < 500 && refused.Status != http.StatusGone && refused.Status != http.StatusNotFound:
		return err
	default:
		return errCut // A node that was started again knows no session.
	}
	// What a broken connection left is of no use.
	defer func() { _ = body.Close() }()
	sum := f.Sum()
	n, err := io.Copy(io.MultiWriter(io.NewOffsetWriter(to, 0), sum), body)
	b.count.add(ofBackups, "bytes", int(n))
	if err != nil || n < f.Size {
		return errCut
	}
	if got, err := sum.Sum(); err != nil || got != f.Checksum {
		if b.rotten(filepath.Base(f.Name)) {
			return errCut
		}
		return fmt.Errorf("%s of a backup has the checksum %s (%w), want %s", f.Name, got, err, f.Checksum)
	}
	return nil
}

// restore starts a node on each copy and holds its log against the known one. All
// nodes of the cluster have ended.
func (b *backer) restore(ctx context.Context, c Cluster, books *ledger) error {
	for _, one := range b.copies {
		if err := c.Check(ctx, one.dir); err != nil {
			b.find.add(kindBackup, "the copy of %s at position %d: %v", one.node, one.position, err)
			continue
		}
		t, stop, err := c.Serve(ctx, one.dir)
		if err != nil {
			return fmt.Errorf("start a node on a backup: %w", err)
		}
		t.Name = fmt.Sprintf("the copy of %s up to position %d", one.node, one.position)
		b.compare(ctx, one, t, books)
		if err := stop(); err != nil {
			return err
		}
	}
	return nil
}

// compare reads the log of a restored node as far as it was copied: what that node writes itself
// follows.
func (b *backer) compare(ctx context.Context, c *databaseCopy, t Target, books *ledger) {
	r := finalReader{b.load, t}
	last, err := r.page(ctx, allBackward(c.position, 1))
	if err != nil || last == nil {
		b.find.add(kindBackup, "%s cannot be read: %v", t.Name, err)
		return
	}
	end := 0
	if len(last.Entries) > 0 {
		if _, end, err = r.log(ctx, &last.Entries[0]); err != nil {
			b.find.add(kindBackup, "%s cannot be read to its end, from event %d of the log on: %v", t.Name, end, err)
			return
		}
	}
	b.count.add(ofBackups, "restored", 1)
	if end > len(books.facts) {
		b.find.add(kindBackup, "%s has %d events, and the log %d", t.Name, end, len(books.facts))
	}
	for ordinal := end; ordinal < len(books.facts); ordinal++ {
		f := books.facts[ordinal]
		if f.ref.isForeign() {
			continue
		}
		if o := b.hist.find(f.ref); o != nil && o.outcome == done && o.ret < c.known {
			b.find.add(kindBackup, "%s lacks event %d of the log, %s, which was acknowledged at %s; the backup began after %s",
				t.Name, ordinal, b.book.say(f), seconds(o.ret), seconds(c.known))
			return
		}
	}
}
