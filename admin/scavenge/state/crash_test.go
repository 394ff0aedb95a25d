package state

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// history is what a run of random transactions has committed so far, and what it is about to
// commit.
type history struct {
	committed content
	next      *content // of an open transaction whose steps are done
}

// run does random transactions until one fails; now and then it closes and opens the state.
func (h *history) run(r *rand.Rand, o Options, transactions int) (err error) {
	d, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for range transactions {
		if r.IntN(6) == 0 {
			if err := d.Close(); err != nil {
				return err
			}
			again, err := Open(context.Background(), o)
			if err != nil {
				return err
			}
			d = again
		}
		if err := h.transaction(r, d); err != nil {
			return errors.Join(err, h.goOn(d))
		}
		if r.IntN(4) == 0 {
			if err := checkDecisions(d, h.committed); err != nil {
				return err
			}
		}
	}
	return nil
}

var errMine = errors.New("changed my mind")

func (h *history) transaction(r *rand.Rand, d *DB) error {
	next := h.committed.clone()
	steps := r.IntN(40)
	if r.IntN(8) == 0 {
		steps = scaled(1200) // more than the cache holds
	}
	back := r.IntN(5) == 0
	err := d.Update(context.Background(), func(tx *Tx) error {
		for range steps {
			if err := step(r, tx, next); err != nil {
				return err
			}
		}
		if back {
			return errMine
		}
		h.next = &next
		return nil
	})
	if back && errors.Is(err, errMine) {
		return nil
	}
	if err != nil {
		return err
	}
	h.committed, h.next = next, nil
	return nil
}

// goOn uses a state after an update failed: it either holds what was committed
// before and can be changed, or fails.
func (h *history) goOn(d *DB) error {
	got, err := read(d)
	if err != nil {
		return err
	}
	if !got.equal(h.committed) {
		return errors.New("after an update failed the state holds something else than before")
	}
	next := h.committed.clone()
	next.Values["completed"] = "after all"
	h.next = &next
	if err := d.Update(context.Background(), func(tx *Tx) error { return tx.SetValue("completed", []byte("after all")) }); err != nil {
		return err
	}
	h.committed, h.next = next, nil
	return nil
}

// check reads a state, which must hold what is committed, or what is about to be.
func (h *history) check(o Options) error {
	d, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	got, err := read(d)
	if err == nil && !got.equal(h.committed) && (h.next == nil || !got.equal(*h.next)) {
		err = fmt.Errorf("holds %d values, %d streams, %d chunks, which are not the ones committed (%d, %d, %d)",
			len(got.Values), len(got.Streams), len(got.Chunks), len(h.committed.Values), len(h.committed.Streams), len(h.committed.Chunks))
	}
	if err == nil {
		err = checkDecisions(d, got)
	}
	if err == nil {
		// It has to work from there.
		err = d.Update(context.Background(), func(tx *Tx) error { return tx.AddWeight(1, 1) })
	}
	return errors.Join(err, d.Close())
}

func TestModel(t *testing.T) {
	r := seeded(t)
	fsys := vfs.NewMem()
	folder(t, fsys)
	h := history{committed: newContent()}
	check.Must(t, h.run(r, small(fsys), scaled(100)))
	check.MustSlice(t, list(t, fsys), []string{fileName}, "after Close")
	check.Must(t, h.check(small(fsys)))
}

// TestCrash cuts the power before each operation that changes files.
func TestCrash(t *testing.T) {
	r := seeded(t)
	disk := vfs.NewCrashMem()
	folder(t, disk)
	h := history{committed: newContent()}
	crashes, operations := 0, 0
	fsys := vfs.NewFaulty(disk, func(op vfs.Op) error {
		if !op.Kind.Mutates() {
			return nil
		}
		// Of a row of writes most are alike; of all others each counts.
		operations++
		if op.Kind == vfs.OpWrite && operations%97 != 0 {
			return nil
		}
		crashes++
		var options vfs.CrashOptions
		if crashes%4 > 0 {
			options.Rand = rand.New(rand.NewPCG(r.Uint64(), 2))
		}
		if err := h.check(small(disk.CrashClone(options))); err != nil {
			t.Errorf("crash %d, before %v of %s: %v", crashes, op.Kind, op.Name, err)
			return err
		}
		return nil
	})
	check.Must(t, h.run(r, small(fsys), scaled(25)))
	t.Logf("%d crashes in %d operations", crashes, operations)
}

// TestFaults fails each operation once, and for good, in one run each.
func TestFaults(t *testing.T) {
	seed := seeded(t).Uint64()
	runs := 0
	for at, stride := 0, 1; ; at, runs = at+stride, runs+1 {
		operations := 0
		hit, lasting := vfs.Op{}, at%2 == 0
		errInjected := errors.New("injected")
		disk := vfs.NewCrashMem()
		folder(t, disk)
		h := history{committed: newContent()}
		healthy := false
		fsys := vfs.NewFaulty(disk, func(op vfs.Op) error {
			operations++
			if healthy || operations-1 < at || (!lasting && operations-1 > at) {
				return nil
			}
			if operations-1 == at {
				hit = op
			}
			return errInjected
		})
		err := h.run(rand.New(rand.NewPCG(seed, 3)), small(fsys), 6)
		if operations <= at {
			t.Logf("%d runs, the last of %d operations", runs, operations)
			break
		}
		if err != nil && !errors.Is(err, errInjected) || event.IsCorruption(err) {
			t.Fatalf("operation %d, %v of %s: the error is %v", at, hit.Kind, hit.Name, err)
		}
		for _, part := range []string{"something else", "not the ones"} {
			if err != nil && strings.Contains(err.Error(), part) {
				t.Fatalf("operation %d, %v of %s: %v", at, hit.Kind, hit.Name, err)
			}
		}
		if err == nil && lasting {
			t.Fatalf("operation %d, %v of %s: no error", at, hit.Kind, hit.Name)
		}
		healthy = true
		if err := h.check(small(disk.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(seed, 4))}))); err != nil {
			t.Fatalf("operation %d, %v of %s, and a crash: %v", at, hit.Kind, hit.Name, err)
		}
		check.Must(t, h.check(small(fsys)), "operation", at, hit.Kind, "of", hit.Name)
		if at > scaled(60) { // the first ones make the file; of the rest a sample
			stride = 1 + at/scaled(12)
		}
	}
}
