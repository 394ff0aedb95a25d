package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/vfs"
)

// rotMargin is left alone at both ends of a chunk: without what stands there a node does not start.
const rotMargin = 4096

// postingsTables is the pattern of the tables of postings, which are named by a GUID.
const postingsTables = "index/postings/????????-*[0-9a-f]"

// streamTables is the pattern of the index tables of streams, with their filters.
const streamTables = "index/????????-*"

// rotSector is what a disk loses at once, in bytes.
const rotSector = 512

// rot is what changed on a disk.
type rot struct {
	node    int
	file    string
	at      int64
	was, is []byte
	struck  int64
	// hidden rot is met by the look-ups that need the place, and by no start.
	hidden bool
}

// healed says that the file was replaced.
func (r *rot) healed(files vfs.FS) (bool, error) {
	f, err := files.Open(r.file)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	now := make([]byte, len(r.is))
	_, err = f.ReadAt(now, r.at)
	if errors.Is(err, io.EOF) { // It was written again after a power cut.
		return true, f.Close()
	}
	return err == nil && !bytes.Equal(now, r.is), errors.Join(err, f.Close())
}

// unmake has a disk give back what was written, if the file is still there.
func (r *rot) unmake(files vfs.FS) error {
	if healed, err := r.healed(files); healed || err != nil {
		return err
	}
	f, err := files.OpenReadWrite(r.file)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(r.was, r.at)
	return errors.Join(err, f.Sync(), f.Close())
}

// strikeRot changes bytes of a file of a node that runs, one of those that match a pattern. It
// spares the last ones, which may still be written, and a margin at both ends. It strikes only when
// what it did before is healed.
func strikeRot(pattern string, spared int, margin int64) func(context.Context, *nemesis) (string, func(context.Context) error, error) {
	return func(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
		node := n.anyVoter()
		if err := n.uncover(); err != nil {
			return "", nil, err
		}
		if whole, err := n.sound(); err != nil || !whole || !n.c.Running(node) || !n.rebuilt(ctx) {
			return "", nil, errors.Join(err, errNotNow)
		}
		files, folder := n.c.Disk(node)
		folder = filepath.Join(folder, path.Dir(pattern))
		names, err := files.List(folder)
		names = slices.DeleteFunc(names, func(name string) bool {
			fits, _ := path.Match(path.Base(pattern), name)
			return !fits || path.Ext(name) == vfs.TempSuffix
		})
		if len(names) <= spared || err != nil {
			return "", nil, errNotNow
		}
		r := &rot{node: node, file: filepath.Join(folder, names[n.rng.IntN(len(names)-spared)]), struck: n.line.now(), hidden: pattern == streamTables}
		n.rotten.Store(filepath.Base(r.file), true)
		err = r.change(files, n.rng, margin)
		// A scavenge or a merge has just replaced it.
		if errors.Is(err, errNotNow) || errors.Is(err, fs.ErrNotExist) {
			return "", nil, errNotNow
		}
		if err != nil {
			return "", nil, err
		}
		n.rot = r
		what := fmt.Sprintf("%d bytes at %d of %s of %s change", len(r.is), r.at, filepath.Base(r.file), n.role(node))
		if n.rng.IntN(2) == 0 {
			return what, nil, nil // Its readers meet it.
		}
		return what + ", and it is started again", func(ctx context.Context) error {
			return errors.Join(n.c.Terminate(ctx, node), n.c.Start(ctx, node))
		}, nil
	}
}

// strikeIndexLoss ends a node and removes its index of postings, which it builds again.
func strikeIndexLoss(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	node := n.anyVoter()
	what := n.role(node) + " ends and loses its index of postings"
	end := n.c.Kill
	if n.rng.IntN(2) == 0 {
		end = func(node int) error { return n.c.Terminate(ctx, node) }
	}
	err := end(node)
	files, folder := n.c.Disk(node)
	return what, func(ctx context.Context) error { return n.c.Start(ctx, node) },
		errors.Join(err, files.RemoveAll(filepath.Join(folder, "index", "postings")))
}

// change changes a bit of the file, chosen by chance, or has a sector read as zeros, as one does
// that the disk never wrote.
func (r *rot) change(files vfs.FS, rng *rand.Rand, margin int64) (err error) {
	f, err := files.OpenReadWrite(r.file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return err
	}
	if size <= 2*margin {
		return errNotNow
	}
	r.at = margin + rng.Int64N(size-2*margin)
	bit, end := byte(1)<<rng.IntN(8), r.at+1
	if sector := r.at / rotSector * rotSector; rng.IntN(2) == 0 {
		r.at, end, bit = max(sector, margin), min(sector+rotSector, size-margin), 0
	}
	r.was = make([]byte, end-r.at)
	if err := vfs.ReadFull(f, r.was, r.at); err != nil {
		return err
	}
	r.is = make([]byte, len(r.was))
	if bit != 0 {
		r.is[0] = r.was[0] ^ bit
	}
	if bytes.Equal(r.is, r.was) {
		return errNotNow
	}
	_, err = f.WriteAt(r.is, r.at)
	return errors.Join(err, f.Sync())
}

// uncover undoes hidden rot that nothing has met.
func (n *nemesis) uncover() error {
	if n.rot == nil || !n.rot.hidden {
		return nil
	}
	files, _ := n.c.Disk(n.rot.node)
	err := n.rot.unmake(files)
	n.rot = nil
	return err
}

// sound says that no rot is left.
func (n *nemesis) sound() (bool, error) {
	if n.rot == nil {
		return true, nil
	}
	files, _ := n.c.Disk(n.rot.node) // A power cut leaves another one.
	whole, err := n.rot.healed(files)
	if whole {
		n.line.add(happenedNode, "%s has healed %s after %s", nodeName(n.rot.node), filepath.Base(n.rot.file), seconds(n.line.now()-n.rot.struck))
		n.rot = nil
	}
	return whole, err
}

// restorePatience is how long rot may go unseen: a node checks files that no client reads when it
// starts.
const restorePatience = 10 * time.Second

// restore waits until rot is healed, unless it is hidden: all streams are still to be read.
// Meanwhile the node is started again, so that it looks at all its files.
func (n *nemesis) restore(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit+restorePatience)
	defer cancel()
	begun, restarted := n.line.now(), false
	for {
		if whole, err := n.sound(); whole || err != nil || n.rot.hidden {
			return err
		}
		if !restarted && n.line.now()-begun > int64(restorePatience) {
			restarted = true
			n.fail(n.c.Terminate(ctx, n.rot.node))
			n.fail(n.c.Start(ctx, n.rot.node))
			if n.err != nil {
				return n.err
			}
		}
		if clock.Sleep(ctx, 200*time.Millisecond) != nil {
			n.find.add(kindHeal, "%s has not healed %s, which changed from byte %d on at %s; it logged last:\n%s", nodeName(n.rot.node), n.rot.file,
				n.rot.at, seconds(n.rot.struck), n.c.LogTail(n.rot.node))
			return nil
		}
	}
}

// isRotten says whether bytes of a file with that name ever changed. Any goroutine may ask.
func (n *nemesis) isRotten(name string) bool {
	_, ok := n.rotten.Load(name)
	return ok
}
