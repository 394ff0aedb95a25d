package simulation

import (
	"strings"
	"syscall"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// TestTraceOfDisks: of the operations only the last are there, among the events of the host.
func TestTraceOfDisks(t *testing.T) {
	tr := newTrace()
	tr.add("node0", "first")
	for i := range 5 * keptOperations {
		tr.operation("node0", vfs.Op{Kind: vfs.OpWrite, Name: "/data/f", Offset: int64(i), Len: 10}, nil)
	}
	tr.operation("node0", vfs.Op{Kind: vfs.OpRead, Name: "/data/f", Offset: 3, Len: 4}, syscall.EIO)
	tr.add("node0", "last")
	lines := strings.Split(strings.TrimSpace(tr.String()), "\n")
	check.MustEqual(t, len(lines), keptOperations+2)
	for i, want := range map[int]string{
		0:                  "node0    first",
		1:                  "disk: write /data/f at 401, 10 bytes",
		keptOperations - 1: "disk: write /data/f at 499, 10 bytes",
		keptOperations:     "disk: read /data/f at 3, 4 bytes, fails: input/output error",
		keptOperations + 1: "node0    last",
	} {
		check.Contains(t, lines[i], want)
	}
}

// TestElections: one term has one winner, who is a member.
func TestElections(t *testing.T) {
	for _, c := range []struct {
		name string
		wins []string // host and term
		want string
	}{
		{"in order", []string{"node0 2", "node1 3", "node0 4"}, ""},
		{"two in a term", []string{"node0 2", "node1 3", "node2 3"}, "node1 and node2 both won the election of term 3\n"},
		{"removed", []string{"node0 2", "spare 3"}, "spare was removed and won the election of term 3\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e elections
			e.removed("spare", true)
			for _, win := range c.wins {
				host, term, _ := strings.Cut(win, " ")
				e.see(host, "raft: election won: term="+term+" tally=2")
			}
			check.Equal(t, e.failed(), c.want)
		})
	}
}
