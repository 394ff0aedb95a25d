package eventlog

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// TestLateNumbers: metadata events after the tombstone, which are numbered by their positions, are
// correct, and do not change the known facts of the stream, whether these are cached or not.
func TestLateNumbers(t *testing.T) {
	for kind, cached := range map[string]bool{"cached": true, "cold": false} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				l := mustOpen(t, testOptions(vfs.NewMem()))
				defer closeLog(t, l)
				write(t, l, m.frame(false, ev("s", "0"), meta("s", `{}`), meta("s", `{"$acl":{"$r":"x"}}`), tombstone("s")))
				want := check.Value(l.Reads.StreamInfo("s")).Must(t)
				for range 2 {
					if !cached {
						l.Reads.streams.reset()
					}
					m.last["$$s"] = m.tail.End - 1
					write(t, l, m.frame(false, meta("s", `{"$acl":{"$r":"y"}}`)))
					time.Sleep(time.Second)
					check.Must(t, l.Health.Unhealthy())
					got, err := l.Reads.StreamInfo("s")
					if check.Must(t, err); !reflect.DeepEqual(got, want) || got.MetaLast != 1 {
						t.Errorf("%+v, want %+v", got, want)
					}
				}
			})
		})
	}
}

// TestNumbersAreCompared: a node that is given an event whose number is taken, or leaves one out,
// says so within a second, whether it knows the facts of the stream or has to look them up; and
// appends it all the same.
func TestNumbersAreCompared(t *testing.T) {
	for _, c := range []struct {
		name   string
		number int64 // of the last event; the stream has 0 to 2
		before string
		wrong  bool
	}{
		{"the next one", 3, "", false},
		{"taken", 2, "", true},
		{"the first again", 0, "", true},
		{"one left out", 4, "", true},
		{"one left out of a limited stream", 4, `{"$maxCount":2}`, false},
		{"tombstone", event.TombstoneNumber, "", false},
	} {
		for kind, cached := range map[string]bool{"cached": true, "cold": false} {
			t.Run(c.name+", "+kind, func(t *testing.T) {
				if cached && c.before != "" {
					t.Skip("what is cached is always there")
				}
				synctest.Test(t, func(t *testing.T) {
					m := newModel()
					o := testOptions(vfs.NewMem())
					l := mustOpen(t, o)
					defer closeLog(t, l)
					write(t, l, m.frame(false, ev("other", ""), ev("s", "0"), ev("s", "1"), ev("s", "2")))
					if c.before != "" {
						write(t, l, m.frame(false, meta("s", c.before)))
					}
					if !cached {
						l.Reads.streams.reset()
					}
					last := ev("s", "3")
					if m.last["s"] = c.number - 1; c.number == event.TombstoneNumber {
						last = tombstone("s")
					}
					f := m.frame(false, ev("other", "1"), last)
					write(t, l, f)
					time.Sleep(time.Second)
					err := l.Health.Unhealthy()
					found, ok := errors.AsType[*event.Renumbered](err)
					if ok != c.wrong || ok && (found.Stream != "s" || found.Number != c.number || !strings.Contains(err.Error(), "answer differently")) {
						t.Errorf("unhealthy: %v", err)
					}
					check.Equal(t, l.Tail().End, f.tail.End, "it was not appended")
				})
			})
		}
	}
}
