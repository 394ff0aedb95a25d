package torture

import (
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// TestMachines: a node keeps its number when it gets another machine, and one more may vote.
func TestMachines(t *testing.T) {
	m := NewMachines([]string{"a", "b", "c", "replica", "spare"}, 3)
	check.Equal(t, HostsFor(3), 5)
	check.Equal(t, m.Voters(), 3)
	check.Slice(t, m.All(), []int{0, 1, 2, 3, Former})
	now, former := m.Swap(1)
	check.Equal(t, now+" "+former+" "+m.At(1)+" "+m.At(Former), "spare b spare b")
	check.Slice(t, m.Nodes(), []string{"a", "spare", "c", "replica"})
	m.Grow(true)
	check.Equal(t, m.Voters(), 4)
	m.Grow(false)
	check.Equal(t, m.Voters(), 3)

	alone := NewMachines([]string{"a"}, 1)
	check.Equal(t, HostsFor(1), 1)
	check.Slice(t, alone.All(), []int{0})
	check.Equal(t, alone.At(Former), "")
}
