package torture

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// TestRot: a bit changes, or a sector is lost, never in the margins, and can be given back.
func TestRot(t *testing.T) {
	const size, margin = 2000, 300
	files := vfs.NewMem()
	f := check.Value(files.Create("f")).Must(t)
	was := bytes.Repeat([]byte{1}, size)
	check.Must(t, check.Err(f.WriteAt(was, 0)))
	check.Must(t, f.Close())
	rng := rand.New(rand.NewPCG(1, 2))
	lengths := map[int]bool{}
	for range 200 {
		r := &rot{file: "f"}
		check.Must(t, r.change(files, rng, margin))
		lengths[len(r.is)] = true
		is := check.Value(vfs.ReadFile(files, "f")).Must(t)
		at := int(r.at)
		if at < margin || at+len(r.is) > size-margin || bytes.Equal(is[at:at+len(r.is)], was[at:at+len(r.is)]) {
			t.Fatalf("%d bytes at %d", len(r.is), at)
		}
		copy(is[at:], r.was)
		check.MustEqual(t, string(is), string(was), "elsewhere")
		whole, err := r.healed(files)
		check.Must(t, err)
		check.Equal(t, whole, false, "healed")
		check.Must(t, r.unmake(files))
		check.MustEqual(t, string(check.Value(vfs.ReadFile(files, "f")).Must(t)), string(was), "given back")
		whole, err = r.healed(files)
		check.Must(t, err)
		check.Equal(t, whole, true, "healed")
	}
	// A bit, whole sectors, and those that reach into a margin.
	for _, length := range []int{1, 512, 512 - margin, size - margin - 1536} {
		check.Equal(t, lengths[length], true, length, "bytes changed")
	}
	check.MustBe(t, (&rot{file: "f"}).change(files, rng, size/2), errNotNow)
}

// TestConsensusStateLost: a node keeps its id unless its disk was destroyed.
func TestConsensusStateLost(t *testing.T) {
	s := newScene(t)
	w := newWatch(nil, nil, s.find, &timeline{})
	const starts = "00000000-0000-0000-0000-000000000000"
	for _, id := range []string{"", starts, "a", "", starts, "a"} {
		w.known(0, id)
		w.known(1, id)
	}
	w.renewed(1)
	w.known(1, "a") // A look that began before.
	w.known(1, "b")
	w.settled(1)
	for _, id := range []string{"a", "b", "a"} { // Gossip may show the old one.
		w.known(1, id)
	}
	s.expect()
	w.known(1, "c")
	s.expect(kindRenewed)
	w.known(0, "b")
	w.known(0, "b")
	check.Equal(t, s.find.total(), 2, "violations")
}
