package backup

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

// Phases of Create.
const (
	PhaseBegin  = "Beginning" // the files that make up the database are being found
	PhaseCopy   = "Copying"
	PhaseVerify = "Verifying" // the written files are read back
	PhaseFinish = "Finishing" // the backup is made durable and listed
)

// Progress is how far the making of a backup is.
type Progress struct {
	Phase       string
	Done, Total int64 // bytes, of all files
}

// CreateOptions say how a backup is made. The zero value makes an incremental one as fast as it
// can.
type CreateOptions struct {
	ID       string // default: a new one
	Full     bool   // copy everything, even files that earlier backups have
	Throttle int64  // bytes to read per second at most, 0: any number
	Verify   bool   // read back the written files
	Progress func(Progress)
	Now      func() time.Time
}

// NewID returns the id of a backup that begins at a time.
func NewID(now time.Time) string {
	var random [4]byte
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	return now.UTC().Format(idLayout) + "-" + hex.EncodeToString(random[:])
}

// maxCopies is how many files are copied at once at most.
const maxCopies = 4

// abortPatience bounds the removal of what a failed backup has written.
const abortPatience = 30 * time.Second

// Create copies the database of a source to a target. The backup is listed when it returns without
// an error, and not otherwise. Files that an earlier backup has are not read at the source.
func Create(ctx context.Context, source Source, target Target, o CreateOptions) (m Manifest, err error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	started := o.Now()
	m = Manifest{Format: manifestFormat, ID: cmp.Or(o.ID, NewID(started)), Kind: KindFull}
	o.Progress(Progress{Phase: PhaseBegin})
	if m.Session, err = source.Begin(ctx); err != nil {
		return m, err
	}
	session := m.Session.ID
	defer func() {
		// A failure to end the session does not fail a finished backup: the session expires by
		// itself.
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortPatience)
		defer cancel()
		if e := source.End(ending, session); err != nil && e != nil {
			err = errors.Join(err, fmt.Errorf("end the session: %w", e))
		}
	}()
	if err := m.Check(); err != nil {
		return m, fmt.Errorf("the source: %w", err)
	}
	w, err := target.Begin(ctx, m.ID)
	if err != nil {
		return m, err
	}
	defer func() {
		if err != nil {
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortPatience)
			defer cancel()
			if e := w.Abort(ending); e != nil {
				err = fmt.Errorf("%w; the files written so far could not be removed: %w", err, e)
			}
		}
	}()
	// After Begin: a prune sees this backup, or this backup sees which ones were removed.
	earlier, err := target.List(ctx)
	if err != nil && !isDamaged(err) { // Damaged backups are not reused.
		return m, err
	}
	limit := rate.Inf
	if o.Throttle > 0 {
		limit = rate.Limit(o.Throttle)
	}
	c := &creation{source: source, session: session, w: w, o: &o, total: m.Bytes(), limit: rate.NewLimiter(limit, copyBuffer)}
	known := map[same]*Manifest{}
	if !o.Full {
		for i := range earlier {
			if earlier[i].ClusterID != m.ClusterID {
				continue
			}
			for j := range earlier[i].Files {
				known[earlier[i].Files[j].same()] = &earlier[i]
			}
		}
	}
	// Checksums take most of the time: several files at once use the processors that there are.
	copies, copying := errgroup.WithContext(ctx)
	copies.SetLimit(min(runtime.GOMAXPROCS(0), maxCopies))
	var copied []*File
	for i := range m.Files {
		f := &m.Files[i]
		if from := known[f.same()]; from != nil {
			reused, err := w.Reuse(copying, from, f)
			if err != nil {
				return m, errors.Join(fmt.Errorf("reuse %s of backup %s: %w", f.Name, from.ID, err), copies.Wait())
			}
			if reused {
				m.Kind = KindIncremental
				c.advance(PhaseCopy, f.Size)
				continue
			}
		}
		copies.Go(func() error { return c.copy(copying, f) })
		copied = append(copied, f)
		m.BytesCopied += f.Size
	}
	if err := copies.Wait(); err != nil {
		return m, err
	}
	if o.Verify {
		if err := c.verify(ctx, copied, m.BytesCopied); err != nil {
			return m, err
		}
		m.Verified = true
	}
	o.Progress(Progress{Phase: PhaseFinish, Done: c.total, Total: c.total})
	m.Seconds = o.Now().Sub(started).Seconds()
	if err := w.Finish(ctx, &m); err != nil {
		return m, err
	}
	return m, nil
}

// creation is a Create that is running.
type creation struct {
	source  Source
	session string
	w       Writing
	o       *CreateOptions
	limit   *rate.Limiter

	mu          sync.Mutex
	done, total int64
}

func (c *creation) advance(phase string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done += n
	c.o.Progress(Progress{Phase: phase, Done: c.done, Total: c.total})
}

// copy copies a file from the source.
func (c *creation) copy(ctx context.Context, f *File) (err error) {
	r, err := c.source.Open(ctx, c.session, f.Name, 0)
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Name, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := c.w.Put(ctx, f, newChecked(&paced{ctx: ctx, r: r, c: c}, f)); err != nil {
		return fmt.Errorf("copy %s: %w", f.Name, err)
	}
	return nil
}

// verify reads back the written files.
func (c *creation) verify(ctx context.Context, files []*File, total int64) error {
	c.done, c.total = 0, total
	for _, f := range files {
		r, err := c.w.Open(ctx, f)
		if err == nil {
			err = readAll(ctx, newChecked(r, f), func(n int64) { c.advance(PhaseVerify, n) })
			err = errors.Join(err, r.Close())
		}
		if err != nil {
			return fmt.Errorf("read back %s: %w", f.Name, err)
		}
	}
	return nil
}

// readAll reads to the end and throws away what it reads.
func readAll(ctx context.Context, r io.Reader, read func(int64)) error {
	buf := make([]byte, copyBuffer)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(buf)
		read(int64(n))
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// paced limits the speed of reading, and reports progress.
type paced struct {
	ctx context.Context
	r   io.Reader
	c   *creation
}

func (p *paced) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	if len(b) > copyBuffer {
		b = b[:copyBuffer]
	}
	n, err := p.r.Read(b)
	if n > 0 {
		if e := p.c.limit.WaitN(p.ctx, n); e != nil {
			return n, e
		}
		p.c.advance(PhaseCopy, int64(n))
	}
	return n, err
}

// discard removes what a Create that was killed has written of the backup with an id, unless it is
// listed.
func discard(ctx context.Context, target Target, id string) error {
	if !ValidID(id) {
		return fmt.Errorf("%q is not the id of a backup", id)
	}
	all, err := target.List(ctx)
	if err != nil || slices.ContainsFunc(all, func(m Manifest) bool { return m.ID == id }) {
		return err
	}
	w, err := target.Begin(ctx, id)
	if err != nil {
		return err
	}
	return w.Abort(ctx)
}

// Pruned is what Prune has removed, or would.
type Pruned struct {
	Removed    []string `json:"removed"`
	BytesFreed int64    `json:"bytesFreed"`
}

// leftoverAge is how old what a killed Create has left must be to be removed: a younger one may
// still be at work.
const leftoverAge = 24 * time.Hour

// Prune removes all but the newest backups, and of those older than maxAge all, if that is not 0;
// the newest one always stays.
func Prune(ctx context.Context, target Target, keep int, maxAge time.Duration, now time.Time, dryRun bool) (Pruned, error) {
	all, err := target.List(ctx)
	if err != nil {
		return Pruned{}, err
	}
	n := len(all)
	if keep > 0 {
		n = min(n, keep)
	}
	stay := all[len(all)-n:]
	for maxAge > 0 && len(stay) > 1 {
		if at, ok := Begun(stay[0].ID); !ok || now.Sub(at) <= maxAge {
			break
		}
		stay = stay[1:]
	}
	gone := all[:len(all)-len(stay)]
	p := Pruned{Removed: []string{}}
	for i := range gone {
		p.Removed = append(p.Removed, gone[i].ID)
	}
	p.BytesFreed, err = target.Remove(ctx, gone, stay, now.Add(-leftoverAge), dryRun)
	return p, err
}

// Find returns a listed backup, the newest one if id is empty.
func Find(ctx context.Context, target Target, id string) (Manifest, error) {
	all, err := target.List(ctx)
	if err != nil && (id == "" || !isDamaged(err)) { // The newest may be one of the damaged.
		return Manifest{}, err
	}
	if id == "" && len(all) > 0 {
		return all[len(all)-1], nil
	}
	i := slices.IndexFunc(all, func(m Manifest) bool { return m.ID == id })
	if i < 0 && err != nil {
		return Manifest{}, err
	}
	if i < 0 || id == "" {
		return Manifest{}, fmt.Errorf("%w: %s", ErrNoBackup, cmp.Or(id, "none at all"))
	}
	return all[i], nil
}
