package output_test

import (
	"testing"

	"github.com/annalsdb/annals/internal/testkit/memdb"
	"github.com/annalsdb/annals/projection/position"
)

// TestResetLeavesForeignEventsBehind: what others wrote before a reset is hidden with all else that
// the stream held. What they write after it, and what another projection wrote, is a fault as
// before.
func TestResetLeavesForeignEventsBehind(t *testing.T) {
	const outside = "The 'out' stream managed by projection 7 has been written to from the outside.\r\nEvent: 1@out"
	cases := []struct {
		name, metadata string
		late           bool // it is written after the reset
		fault          string
	}{
		{name: "no metadata"},
		{name: "metadata of its own", metadata: `{"user":"jane"}`},
		{name: "metadata that is no position", metadata: `{"$v":"7:-1:2:4","$c":"x"}`},
		{name: "after the reset", late: true, fault: outside},
		{name: "after the reset, with metadata", metadata: `{"user":"jane"}`, late: true,
			fault: "The given checkpoint is invalid. Possible causes might include having written an event to the projection's managed stream. The bad checkpoint: {\"user\":\"jane\"}"},
		{name: "of another projection", metadata: `{"$v":"8:-1:2:4","$c":3,"$p":3}`,
			fault: "Multiple projections emitting to the same stream detected.  Stream: 'out'. Last event projection: '8'.  Emitting projection: '7'"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := memdb.Open(t, memdb.Options{})
			s.Append("$projections-p", "$ProjectionUpdated", "{}", "")
			s.Append("out", "T", "old", metadataAt(1))
			// Its number is the epoch.
			reset := func() { s.Append("$projections-p", "$ProjectionUpdated", "{}", "") }
			if c.late {
				reset()
			}
			s.Append("out", "T", "foreign", c.metadata)
			if !c.late {
				reset()
			}
			o := options(s)
			o.Version = position.Version{Projection: 7, Epoch: 1, Version: 1}
			var passed []string
			o.Passed = func(what string) { passed = append(passed, what) }
			r := start(t, o)
			r.emit(1, "out T again")
			if c.fault != "" {
				same(t, "fault", r.fails(), c.fault)
				same(t, "passed", len(passed), 0)
				return
			}
			r.flush()
			same(t, "stream", s.Lines("out"), []string{"2 T again"})
			same(t, "passed", passed, []string{"The event 1@out was written from the outside before the reset. The stream continues after it."})
		})
	}
}
