package api

import (
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

func TestParseWait(t *testing.T) {
	for _, c := range []struct {
		position, atMost string
		want             Wait // zero: it is refused
	}{
		{"123", "", Wait{123, DefaultWait}},
		{" 0 ", " 0 ", Wait{0, 0}},
		{"C:123/P:123", "5s", Wait{123, 5 * time.Second}},
		{"C:123/P:-1", "", Wait{}},
		{"C:123", "1m", Wait{}},
		{"123", "1m", Wait{123, time.Minute}},
		{"123/120", "7", Wait{123, 7 * time.Second}},
		{"000000000000007B000000000000007b", "10ms", Wait{123, 10 * time.Millisecond}},
		{`{"$c":123,"$p":123}`, "", Wait{123, DefaultWait}},
		{`{"$c":123,"$p":122,"$s":{"t":-1}}`, "", Wait{123, DefaultWait}},
		{"9223372036854775807", "", Wait{1<<63 - 1, DefaultWait}},
		{"", "", Wait{}},
		{"-1", "", Wait{}},
		{"C:-1/P:-1", "", Wait{}},
		{"9223372036854775808", "", Wait{}},
		{"123/", "", Wait{}},
		{"/123", "", Wait{}},
		{"C:123/P:x", "", Wait{}},
		{"0x7b", "", Wait{}},
		{"head", "", Wait{}},
		{"800000000000007B000000000000007b", "", Wait{}},
		{"000000000000007B00000000000000zz", "", Wait{}},
		{`{"$s":{"s":1}}`, "", Wait{}},
		{`{"$c":-1}`, "", Wait{}},
		{"1", "-1s", Wait{}},
		{"1", "61", Wait{}},
		{"1", "soon", Wait{}},
		{"1", "99999999999999999999", Wait{}},
	} {
		w, err := ParseWait(c.position, c.atMost)
		if c.want == (Wait{}) && (c.position != " 0 ") {
			if _, isBad := err.(*event.BadRequest); !isBad {
				t.Errorf("%q, %q: %+v, %v", c.position, c.atMost, w, err)
			}
			continue
		}
		check.Equal(t, w, c.want, c.position, c.atMost)
		check.NoError(t, err)
	}
}
