package scavenge

import "testing"

func TestDoneIsNeverMoreThanTotal(t *testing.T) {
	r := &run{}
	r.did(5) // Of a total that is not known.
	if got := r.status(); got.Done != 5 || got.Total != 0 {
		t.Errorf("total not known: %+v", got)
	}
	r.begin(10, "entries")
	for range 3 { // Of the index entries that were in memory when they were counted.
		r.did(5)
		if got := r.status(); got.Done > got.Total {
			t.Errorf("%d of %d", got.Done, got.Total)
		}
	}
}
