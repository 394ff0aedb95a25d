package bench

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/annalsdb/annals/internal/check"
)

func TestNumberOfFixedID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hash := rapid.Uint64().Draw(t, "hash")
		number := rapid.Int64Range(0, 1<<40).Draw(t, "number")
		id := fixedID(hash, number)
		if got, ok := numberOf(hash, id, number+1); !ok || got != number {
			t.Errorf("got %d, %t", got, ok)
		}
		if _, ok := numberOf(hash, id, number); ok {
			t.Error("an event that is not in the stream was found")
		}
		if _, ok := numberOf(hash+1, id, 1<<40); ok {
			t.Error("an event of another stream was found")
		}
	})
}

func TestDeliveries(t *testing.T) {
	start := time.Unix(1000, 0)
	d := newDeliveries(130)
	d.touch(start)
	var most []int64
	for n := range int64(129) {
		most = append(most, n)
	}
	d.add(most, 0, start.Add(time.Second))
	d.add([]int64{3, 64, 128}, 3, start.Add(2*time.Second))
	if d.distinct != 129 || d.again != 3 || d.complete() {
		t.Errorf("%d events, %d again, complete %t", d.distinct, d.again, d.complete())
	}
	check.Equal(t, d.lost(start.Add(2*time.Second+patience-1)), 0, "lost too early")
	check.Equal(t, d.lost(start.Add(2*time.Second+patience)), 1, "lost")
	// A read without an answer may have taken the last one with it.
	d.touch(start.Add(messageTimeout))
	if n := d.lost(start.Add(messageTimeout + patience - 1)); n != 0 {
		t.Errorf("%d lost before their time was over", n)
	}
	d.add([]int64{129}, 0, start)
	if !d.complete() || d.lost(start.Add(time.Hour)) != 0 {
		t.Error("not complete")
	}
}
