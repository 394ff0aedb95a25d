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

// index is one whose merges end when the test says so.
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
		for before, outcome := range []error{nil, errors.New("no space"), nil} {
			for range 3 {
				id, err := jobs.Start(x.Merge)
				if err != nil || seen[id] {
					t.Fatalf("id %v, error %v", id, err)
				}
				seen[id] = true
			}
			synctest.Wait()
			if x.merges != before+1 {
				t.Fatalf("%d merges for %d batches of three orders", x.merges, before+1)
			}
			x.end <- outcome
			synctest.Wait()
		}
		jobs.Close()
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, x := indexmerge.New(hclog.NewNullLogger()), &index{end: make(chan error)}
		if _, err := jobs.Start(x.Merge); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		jobs.Close() // It returns although the merge does not end.
		jobs.Close()
		if _, err := jobs.Start(x.Merge); !errors.Is(err, event.ErrClosed) {
			t.Fatalf("started after the end: %v", err)
		}
	})
}
