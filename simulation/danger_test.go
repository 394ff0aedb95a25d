//go:build durablelocks

package simulation

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/torture"
)

// TestDanger: a change that is seldom made is struck, and one that is made all the time does not
// take all blows.
func TestDanger(t *testing.T) {
	c := new(cluster)
	c.danger = newDanger(rand.New(rand.NewPCG(1, 2)))
	m := &member{c: c, disk: vfs.NewCrashMem()}
	c.Machines = torture.NewMachines([]*member{m}, 1)
	change := func(op vfs.Op) bool {
		_, strikes := c.danger.strikes(m, op)
		return strikes
	}
	write := vfs.Op{Kind: vfs.OpWrite, Name: "/data/chunk-000001.000000"}
	for range 100 {
		if change(write) {
			t.Fatal("a node that is not in danger was struck")
		}
	}
	c.Endanger(0, torture.Danger{Power: true})
	blows := 0
	for i := range 100_000 {
		op := write
		if i%10_000 == 9_999 {
			op = vfs.Op{Kind: vfs.OpRename, Name: fmt.Sprintf("/data/index/%08x-0000-4000-8000-000000000000.tmp", i)}
		}
		if change(op) {
			blows++
		}
	}
	renames := c.danger.blows["rename /data/index/#.tmp"]
	if renames < 2 || blows > 30 {
		t.Fatalf("%d of 10 renames and %d changes in all were struck", renames, blows)
	}
	c.Endanger(0, torture.Danger{})
	for range 100_000 {
		if change(write) {
			t.Fatal("a node that is out of danger again was struck")
		}
	}
}
