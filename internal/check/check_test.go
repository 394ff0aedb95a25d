package check

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// recorder is a test that notes how it failed.
type recorder struct{ said string }

func (*recorder) Helper()                          {}
func (r *recorder) Errorf(format string, a ...any) { r.said += "error " + fmt.Sprintf(format, a...) }
func (r *recorder) Fatalf(format string, a ...any) { r.said += "fatal " + fmt.Sprintf(format, a...) }

func TestReports(t *testing.T) {
	odd := errors.New("odd")
	long := "a text that is too long to stand on one line with another"
	for _, c := range []struct {
		do   func(t T)
		want string
	}{
		{func(t T) { Must(t, nil, "a") }, ""},
		{func(t T) { Must(t, Err(1, odd)) }, "fatal odd"},
		{func(t T) { Must(t, odd, "call", 3, "of", "a") }, "fatal call 3 of a: odd"},
		{func(t T) { Equal(t, Value(3, nil).Must(t), 3) }, ""},
		{func(t T) { Value(3, odd).Must(t, "a") }, "fatal a: odd"},
		{func(t T) { NoError(t, nil) }, ""},
		{func(t T) { NoError(t, odd, "a") }, "error a: odd"},
		{func(t T) { Fails(t, odd) }, ""},
		{func(t T) { Fails(t, nil, "a") }, "error a: no error"},
		{func(t T) { MustFail(t, odd) }, ""},
		{func(t T) { MustFail(t, nil) }, "fatal no error"},
		{func(t T) { Is(t, fmt.Errorf("a: %w", odd), odd) }, ""},
		{func(t T) { Is(t, io.EOF, odd, "a") }, "error a: got EOF, want odd"},
		{func(t T) { Is(t, nil, odd) }, "error got <nil>, want odd"},
		{func(t T) { MustBe(t, odd, odd) }, ""},
		{func(t T) { MustBe(t, io.EOF, odd) }, "fatal got EOF, want odd"},
		{func(t T) { Says(t, odd, "d") }, ""},
		{func(t T) { Says(t, odd, "x") }, `error got error odd, want one that says "x"`},
		{func(t T) { Says(t, nil, "") }, `error got error <nil>, want one that says ""`},
		{func(t T) { MustSay(t, odd, "od") }, ""},
		{func(t T) { MustSay(t, nil, "x", "a") }, `fatal a: got error <nil>, want one that says "x"`},
		{func(t T) { Equal(t, int64(3), 3) }, ""},
		{func(t T) { Equal(t, 3, 4, "a") }, "error a: got 3, want 4"},
		{func(t T) { Equal(t, "3", long) }, "error \n got \"3\"\nwant \"" + long + `"`},
		{func(t T) { Equal(t, "a\nb", "a") }, "error \n got a\nb\nwant \"a\""},
		{func(t T) { MustEqual(t, true, true) }, ""},
		{func(t T) { MustEqual(t, 3, 4) }, "fatal got 3, want 4"},
		{func(t T) { Slice(t, nil, []int{}) }, ""},
		{func(t T) { Slice(t, []string{"a"}, nil) }, `error got ["a"], want []`},
		{func(t T) { MustSlice(t, []int{1}, []int{1}) }, ""},
		{func(t T) { MustSlice(t, []byte("a"), []byte("b")) }, `fatal got "a", want "b"`},
		{func(t T) { Deep(t, map[int]int{1: 2}, map[int]int{1: 2}) }, ""},
		{func(t T) { Deep(t, struct{ A int }{1}, 2) }, "error got {A:1}, want 2"},
		{func(t T) { MustDeep(t, 1, 1) }, ""},
		{func(t T) { MustDeep(t, 1, int64(1)) }, "fatal got 1, want 1"},
		{func(t T) { Contains(t, "abc", "b") }, ""},
		{func(t T) { Contains(t, "abc", "x") }, `error "x" is not in abc`},
		{func(t T) { MustContain(t, "abc", "b") }, ""},
		{func(t T) { MustContain(t, "abc", "x", "a") }, `fatal a: "x" is not in abc`},
	} {
		var r recorder
		if c.do(&r); r.said != c.want {
			t.Errorf("got  %s\nwant %s", r.said, c.want)
		}
	}
}
