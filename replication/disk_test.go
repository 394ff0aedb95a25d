package replication

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/hang"
	"github.com/annalsdb/annals/stats"
)

// A hanging operation is logged once, and so is its end.
func TestDiskThatHangs(t *testing.T) {
	changes := 0
	d := &disk{logger: hclog.NewNullLogger(), count: new(stats.Registry).Counter("hangs", ""), changed: func() { changes++ }}
	for _, step := range []struct {
		name    string
		op      *hang.Op
		hanging bool
		changes int
		count   uint64
	}{
		{"at work", nil, false, 0, 0},
		{"hangs", &hang.Op{Doing: "store entries", File: "/data"}, true, 1, 1},
		{"hangs on", &hang.Op{Doing: "store votes", File: "/data"}, true, 1, 1},
		{"works again", nil, false, 2, 1},
		{"hangs again", &hang.Op{Doing: "store votes", File: "/data"}, true, 3, 2},
	} {
		d.note(step.op, time.Second)
		if err := d.hanging(); (err != nil) != step.hanging || err != nil && !errors.Is(err, errHangs) {
			t.Errorf("%s: %v", step.name, err)
		}
		if changes != step.changes || d.count.Value() != step.count {
			t.Errorf("%s: %d changes, counted %d", step.name, changes, d.count.Value())
		}
	}
}
