package eventlog

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/log/chunkfile"
)

// TestRecentIDsModel holds the memory against a plain list of the newest entries.
func TestRecentIDsModel(t *testing.T) {
	for _, capacity := range []int{1, 2, 3, 5, 8, 64, 1000, 1025, 2*len(idBlock{}) + 5} {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newRecentIDs(capacity)
		// The table goes, and is made again.
		r.unasked = []int{2, capacity, 20 * capacity}[rng.IntN(3)]
		var all []recentID // oldest first
		universe := capacity*2 + 3
		random := func() recentID {
			var e recentID
			// Few distinct homes: long runs in the table.
			chunkfile.Order.PutUint64(e.id[:], uint64(rng.IntN(universe)))
			e.stream = uint64(rng.IntN(2))
			e.number = int64(len(all))
			all = append(all, e)
			return e
		}
		loaded := make([]recentID, rng.IntN(2*capacity+1))
		for i := range loaded {
			loaded[len(loaded)-1-i] = random()
		}
		if len(loaded) > capacity {
			loaded = loaded[:capacity] // Newest first, as many as there is room for.
		}
		for range rng.IntN(4) {
			r.add([]recentID{random()}) // While it loads.
		}
		r.load(loaded, nil, nil)
		for step := range 4*capacity + 50 {
			if step > 0 {
				r.add([]recentID{random()})
			}
			if capacity > 100 && step%23 > 0 {
				continue // Looking through the list takes long.
			}
			newest := all[max(0, len(all)-capacity):]
			for range 10 {
				var id event.ID
				chunkfile.Order.PutUint64(id[:], uint64(rng.IntN(universe)))
				stream := uint64(rng.IntN(2))
				want, known := int64(0), false
				for _, e := range newest {
					if e.id == id && e.stream == stream {
						want, known = e.number, true
					}
				}
				got, ok, err := r.find(id, stream)
				if ok != known || got != want || err != nil {
					t.Fatalf("seed %d, capacity %d, %d entries: found %d (%v, %v), want %d (%v)", seed, capacity, len(all), got, ok, err, want, known)
				}
			}
		}
		if r.table != nil && len(r.table) < 2*r.held || len(r.table) > max(4096, 8*capacity) {
			t.Fatalf("table of %d for %d entries", len(r.table), r.held)
		}
	}
}

func TestRecentIDsNotLoaded(t *testing.T) {
	r := newRecentIDs(10)
	r.add([]recentID{{id: event.ID{1}, number: 3}})
	found := make(chan error)
	go func() {
		_, _, err := r.find(event.ID{1}, 0)
		found <- err
	}()
	want := errors.New("unreadable")
	r.load(nil, nil, want)
	check.MustBe(t, <-found, want)
}

// TestRecentIDsSpread: ids that only count up, wherever the counter stands, must not gather in few
// slots.
func TestRecentIDsSpread(t *testing.T) {
	for at := 0; at <= 12; at += 4 {
		r := newRecentIDs(1 << 16)
		r.load(nil, nil, nil)
		const n = 20_000
		for i := range n {
			e := recentID{stream: 1, number: int64(i)}
			binary.BigEndian.PutUint32(e.id[at:], uint32(i))
			r.add([]recentID{e})
		}
		longest, run := 0, 0
		for _, slot := range r.table {
			if run++; slot == 0 {
				run = 0
			}
			longest = max(longest, run)
		}
		if longest > 200 {
			t.Errorf("counter at byte %d: a run of %d slots", at, longest)
		}
	}
}
