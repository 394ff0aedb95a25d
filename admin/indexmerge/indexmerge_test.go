package indexmerge_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/indexmerge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
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
			check.MustEqual(t, x.merges, before+1, "merges for ... batches of three orders")
			x.end <- outcome
			synctest.Wait()
		}
		jobs.Close()
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, x := indexmerge.New(hclog.NewNullLogger()), &index{end: make(chan error)}
		check.Must(t, check.Err(jobs.Start(x.Merge)))
		synctest.Wait()
		jobs.Close() // It returns although the merge does not end.
		jobs.Close()
		check.MustBe(t, check.Err(jobs.Start(x.Merge)), event.ErrClosed, "started after the end")
	})
}
