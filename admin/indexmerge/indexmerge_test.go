package indexmerge_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/indexmerge"
	"github.com/annalsdb/annals/event"
)

// index is one whose merges end when they are told to.
type index struct {
	merges int
	end    chan error
}

func (x *index) Merge(ctx context.Context) error {
	x.merges++
	select {
	case err := <-x.end:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, x := indexmerge.New(hclog.NewNullLogger()), &index{end: make(chan error)}
		seen := map[event.ID]bool{}
		for _, outcome := range []error{nil, errors.New("no space"), nil} {
			for range 3 {
				id, err := jobs.Start(x)
				if err != nil || seen[id] {
					t.Fatalf("id %v, error %v", id, err)
				}
				seen[id] = true
			}
			if !jobs.Running() {
				t.Fatal("nothing runs")
			}
			x.end <- outcome
			synctest.Wait()
			if jobs.Running() {
				t.Fatal("it still runs")
			}
		}
		if x.merges != 3 {
			t.Fatalf("%d merges for nine orders in three batches", x.merges)
		}
		jobs.Close()
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, x := indexmerge.New(hclog.NewNullLogger()), &index{end: make(chan error)}
		if _, err := jobs.Start(x); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		jobs.Close() // It returns although nobody ends the merge.
		jobs.Close()
		if _, err := jobs.Start(x); !errors.Is(err, event.ErrClosed) {
			t.Fatalf("started after the end: %v", err)
		}
	})
}
