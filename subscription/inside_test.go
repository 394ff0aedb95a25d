package subscription

import (
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func TestHash32(t *testing.T) {
	for text, want := range map[string]uint32{
		"": 0x02CC5D05, "a": 0x550D7456, "abc": 0x32D153FF, "Nobody inspects the spammish repetition": 0xE2293B2F,
	} {
		check.Equal(t, hash32([]byte(text)), want, text)
	}
}

func TestPinnedShares(t *testing.T) {
	c := &core{}
	p := &pinned{c: c}
	c.strategy = p
	join := func() *consumer {
		to := &consumer{}
		c.join(to)
		return to
	}
	one := join()
	for b := range 10 {
		p.give(b, one)
	}
	p.inFlight[0], p.inFlight[1] = 1, 1
	two := join()
	if one.buckets != 5 || two.buckets != 5 || p.owner[0] != one || p.owner[1] != one {
		t.Errorf("%d and %d", one.buckets, two.buckets)
	}
	three := join()
	check.Equal(t, three.buckets, 3, "the third has")
	p.left(one)
	if one.buckets != 0 || p.owner[0] != nil {
		t.Errorf("who left has %d", one.buckets)
	}
}
