package node

import "testing"

// TestForwards: what is on its way to the leader is bounded, by count and by bytes; one large write
// finds room alone.
func TestForwards(t *testing.T) {
	var f forwards
	if !f.enter(2*maxForwardedBytes) || f.enter(1) {
		t.Fatal("a large write goes alone")
	}
	f.leave(2 * maxForwardedBytes)
	if !f.enter(maxForwardedBytes-1) || !f.enter(1) || f.enter(1) {
		t.Fatal("bytes are not bounded")
	}
	f.leave(1)
	f.leave(maxForwardedBytes - 1)
	for range maxForwarded {
		if !f.enter(0) {
			t.Fatal("no room")
		}
	}
	if f.enter(0) {
		t.Fatal("the count is not bounded")
	}
	for range maxForwarded {
		f.leave(0)
	}
	if f.count != 0 || f.bytes != 0 {
		t.Fatalf("%d writes of %d bytes are left", f.count, f.bytes)
	}
}
