//go:build sabotage

package fsm_test

import (
	"strings"
	"testing"

	"github.com/annalsdb/annals/fsm"
	"github.com/annalsdb/annals/internal/vfs"
)

// With a promise broken the machine does what it never may.
func TestSabotaged(t *testing.T) {
	l := startLeader(t)
	x := entriesOf(l, appending("x", -2, 1), appending("x", -2, 2))
	y := entriesOf(l, appending("y", -2, 1), appending("y", -2, 2))
	t.Run("fence", func(t *testing.T) {
		n := startNode(t, vfs.NewMem())
		m := fsm.Sabotage(n.m, false)
		batch := commands(1, 1, y[0], x[0], x[1], y[1])
		mustAnswer(t, m.ApplyBatch(batch), "ok ok ok ok")
		mustAnswer(t, m.ApplyBatch(batch[2:]), "ok ok")
		if got := len(n.all()); got != 6 {
			t.Fatalf("%d records, want 6", got)
		}
	})
	t.Run("drop", func(t *testing.T) {
		n := startNode(t, vfs.NewMem())
		for i := range 600 {
			l.write(appending("s", -2, i))
			l.flush()
		}
		mustAnswer(t, fsm.Sabotage(n.m, true).ApplyBatch(l.history), strings.TrimSpace(strings.Repeat("ok ", 600)))
		if got := len(n.all()); got != 594 {
			t.Fatalf("%d records, want 594", got)
		}
	})
}
