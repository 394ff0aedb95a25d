package eventlog

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
)

var errInjected = errors.New("injected")

// TestInjectedErrors fails many an operation of the script once, and only once.
func TestInjectedErrors(t *testing.T) {
	m := scriptModel()
	kinds := map[vfs.Kind]bool{
		vfs.OpCreate: true, vfs.OpWrite: true, vfs.OpSync: true, vfs.OpSyncDir: true, vfs.OpRename: true,
		vfs.OpTruncate: true, vfs.OpRemove: true, vfs.OpOpenReadWrite: true, vfs.OpMkdirAll: true, vfs.OpLock: true,
	}
	step, from := testkit.Sample(t, everyCut)
	for at, hit := int64(from)+1, true; hit; at += int64(step) {
		mem := vfs.NewMem()
		var count atomic.Int64
		var victim atomic.Pointer[vfs.Op]
		counting := vfs.NewCounting(vfs.NewFaulty(mem, func(op vfs.Op) error {
			if !kinds[op.Kind] || count.Add(1) != at {
				return nil
			}
			victim.Store(&op)
			if op.Kind == vfs.OpWrite && at%2 == 0 {
				return &vfs.ShortWrite{N: int(op.Len / 2), Err: syscall.ENOSPC}
			}
			return errInjected
		}))
		r := newRun(m, counting)
		var cause atomic.Pointer[error]
		r.o.OnFatal = func(err error) { cause.Store(&err); r.fatal.Add(1) }
		err := r.play()
		op := victim.Load()
		if hit = op != nil; !hit {
			check.Must(t, err)
			t.Logf("%d operations", at-1)
			break
		}
		check.Must(t, r.afterError(err, op, &cause), "operation", at, op.Kind, op.Name)
		if open := counting.OpenFiles(); len(open) > 0 {
			t.Fatalf("operation %d, %s %s: left open: %v", at, op.Kind, op.Name, open)
		}
		if err := recovered(m, mem, int(r.synced.Load())); err != nil {
			t.Fatalf("operation %d, %s %s: then: %v", at, op.Kind, op.Name, err)
		}
	}
}

// afterError expects what must hold after an operation failed: err is what the script met. The
// index fails in the background, so OnFatal may be called while this runs; the cause is there
// before the count.
func (r *run) afterError(err error, op *vfs.Op, cause *atomic.Pointer[error]) error {
	if err == nil {
		// Replaced files that could not be removed, a background error met on the way
		// out, and index files that Close gave up anyway: the log has what is in them.
		if op.Kind == vfs.OpRemove || r.fatal.Load() == 1 || strings.HasPrefix(op.Name, testDir+"/index") {
			return nil
		}
		return errors.New("OnFatal was not called")
	}
	if !errors.Is(err, errInjected) && !errors.Is(err, syscall.ENOSPC) && !strings.Contains(err.Error(), "closed") {
		return err
	}
	if r.l == nil { // Open failed.
		return nil
	}
	if r.swallowed {
		return r.l.Close()
	}
	if n := r.fatal.Load(); n > 1 || n == 1 && !strings.Contains((*cause.Load()).Error(), op.Name) {
		return errors.Join(errors.New("OnFatal got another error, or more than one"), *cause.Load())
	}
	if r.fatal.Load() == 1 && !r.l.gone.Load() {
		if r.l.Failed() == nil || r.l.Append(Frame{}) == nil || r.l.Commit() == nil || r.l.syncer.Sync() == nil || r.l.SwitchChunk("x") == nil {
			return errors.New("continues after an error")
		}
		if err := r.readable(); err != nil {
			return err
		}
	}
	if err := r.l.Close(); err != nil && !errors.Is(err, errInjected) && !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return nil
}

// readable reads what was committed before the error.
func (r *run) readable() error {
	n := 0
	for n < len(r.m.frames) && r.m.frames[n].Index <= r.l.Tail().Index {
		n++
	}
	if n < r.committed {
		return errors.New("less is to be read than was committed")
	}
	return checkPages(r.l, r.m.frames[:n], nil)
}

func TestDiskFull(t *testing.T) {
	m := newModel()
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	var told []error
	o.OnFatal = func(err error) { told = append(told, err) }
	l := mustOpen(t, o)
	write(t, l, m.someFrames(10, true)...)
	fsys.SetCapacity(1)
	m.frame(false, ev("s", "1"))
	check.MustBe(t, errors.Join(l.Append(m.frames[10].Frame), l.Commit()), syscall.ENOSPC)
	if len(told) != 1 || !errors.Is(told[0], syscall.ENOSPC) {
		t.Fatalf("told %v", told)
	}
	check.MustBe(t, l.Close(), syscall.ENOSPC)
	fsys.SetCapacity(0)
	check.Must(t, recovered(m, fsys, 10))
}
