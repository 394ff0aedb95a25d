package fsm_test

import (
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// metadataOf returns the last metadata document of a stream, and its number.
func metadataOf(l *leader, stream string) (document string, number int64) {
	l.t.Helper()
	l.flush()
	rec, err := l.log.Reads.LastRecord(event.MetaStreamOf(stream))
	if err != nil {
		l.t.Fatalf("metadata of %s: %v", stream, err)
	}
	if rec.Type != event.TypeMetadata || !rec.IsJSON() {
		l.t.Fatalf("metadata of %s has type %s, flags %d", stream, rec.Type, rec.Flags)
	}
	return string(rec.Data), rec.Number
}

// numbers returns what a read of a stream shows.
func numbers(l *leader, stream string) (shown []int64) {
	l.t.Helper()
	page, err := l.log.Reads.ReadStream(event.StreamRead{Stream: stream, From: 0, Count: 1000})
	if err != nil {
		l.t.Fatalf("read %s: %v", stream, err)
	}
	for i := range page.Events {
		shown = append(shown, page.Events[i].Number)
	}
	return shown
}

const softDeleted = `{"$tb":9223372036854775807}`

func TestRevival(t *testing.T) {
	for _, c := range []struct {
		name     string
		writes   []*event.Write
		document string
		number   int64 // of the last metadata
		shown    []int64
	}{
		{
			"soft-deleted", []*event.Write{deleting(event.SoftDelete, "s", -2)},
			softDeleted, 1, nil,
		}, {
			"by an append", []*event.Write{deleting(event.SoftDelete, "s", -2), appending("s", -2, 60, 61)},
			`{"$tb":3}`, 2, []int64{3, 4},
		}, {
			"twice", []*event.Write{
				deleting(event.SoftDelete, "s", 2), appending("s", 2, 60), deleting(event.SoftDelete, "s", 3), appending("s", -1, 61), appending("s", 4, 62),
			},
			`{"$tb":4}`, 4, []int64{4, 5},
		}, {
			"by an append, after posted metadata with other keys", []*event.Write{
				describing("s", 0, 70, `{"$maxCount":5,"own":"<&>","$tb":9223372036854775807}`), appending("s", -1, 60),
			},
			`{"$maxCount":5,"$tb":3,"own":"<&>"}`, 2, []int64{3},
		}, {
			"by metadata", []*event.Write{deleting(event.SoftDelete, "s", -2), describing("s", 1, 70, `{"own":{"b":[1,2]},"$maxCount":4}`)},
			`{"$maxCount":4,"$tb":3,"own":{"b":[1,2]}}`, 3, nil,
		}, {
			"by metadata with a $tb of its own", []*event.Write{deleting(event.SoftDelete, "s", -2), describing("s", -2, 70, `{"$tb":1}`)},
			`{"$tb":3}`, 3, nil,
		}, {
			"by metadata that is no JSON", []*event.Write{deleting(event.SoftDelete, "s", -2), describing("s", -2, 70, `hello`)},
			`{"$tb":3}`, 3, nil,
		}, {
			"by empty metadata", []*event.Write{deleting(event.SoftDelete, "s", -2), describing("s", -2, 70, ``)},
			`{"$tb":3}`, 3, nil,
		}, {
			// Left in, the key of the wrong type would make the document count as
			// empty, and what was deleted would be back.
			"by metadata of the wrong type", []*event.Write{deleting(event.SoftDelete, "s", -2), describing("s", -2, 70, `{"$maxCount":"5"}`)},
			`{"$tb":3}`, 3, nil,
		}, {
			"not by soft-deleting metadata", []*event.Write{deleting(event.SoftDelete, "s", -2), describing("s", -2, 70, `{"$tb":9223372036854775807,"k":1}`), appending("s", -2, 60)},
			`{"$tb":3,"k":1}`, 3, []int64{3},
		}, {
			"by metadata, then an append", []*event.Write{deleting(event.SoftDelete, "s", -2), describing("s", -2, 70, `{"k":1}`), appending("s", -2, 60)},
			`{"$tb":3,"k":1}`, 3, []int64{3},
		}, {
			"not needed", []*event.Write{describing("s", -2, 70, `{"$tb":2}`), appending("s", -2, 60)},
			`{"$tb":2}`, 1, []int64{2, 3},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, stage := range stages {
				t.Run(stage.name, func(t *testing.T) {
					l := startLeader(t)
					l.write(appending("s", -1, 1, 2, 3))
					l.write(describing("s", -1, 71, `{"first":1}`))
					stage.done(l)
					for _, w := range c.writes {
						l.write(w)
						stage.done(l)
					}
					document, number := metadataOf(l, "s")
					if number != c.number || compact(document) != compact(c.document) {
						t.Fatalf("metadata %d %s, want %d %s", number, document, c.number, c.document)
					}
					if strings.Contains(c.document, softDeleted[1:20]) {
						return
					}
					if shown := numbers(l, "s"); !equal(shown, c.shown) {
						t.Fatalf("shown are %v, want %v", shown, c.shown)
					}
				})
			}
		})
	}
}

func compact(document string) string {
	return strings.NewReplacer(" ", "", `\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(document)
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// A batch of metadata counts by its last event, and is numbered and recognised
// like any other.
func TestMetadataStream(t *testing.T) {
	for _, stage := range stages {
		t.Run(stage.name, func(t *testing.T) {
			l := startLeader(t)
			step := func(w *event.Write, want outcome) {
				t.Helper()
				expect(t, l, w, want)
				stage.done(l)
			}
			batch := appending("$$s", -1, 1, 2)
			batch.Events[0].Data = []byte(softDeleted)
			step(batch, wrote(0, 1))
			// not soft-deleted: the last event says nothing
			step(appending("s", -1, 10), wrote(0, 0))
			step(describing("s", 1, 3, `{"k":1}`), wrote(2, 2))
			step(describing("s", -2, 3, `{"k":2}`), before(2, 2))
			step(describing("s", 0, 2, `{}`), before(1, 1))
			step(describing("s", -1, 9, `{}`), conflict(2))
			step(describing("s", -4, 4, `{}`), wrote(3, 3))
			step(describing("new", -4, 4, `{}`), conflict(-1))
			step(deleting(event.SoftDelete, "s", -2), wrote(0, 0)) // writes metadata 4
			// what the database wrote counts
			step(describing("s", 3, 5, `{}`), conflict(4))
			// says what is the case already
			step(describing("s", 4, 5, softDeleted), wrote(5, 5))
			// and 7, which hides what was there
			step(describing("s", 5, 6, `{"k":3}`), wrote(6, 6))
			step(describing("s", 5, 6, `{"k":3}`), before(6, 6))  // the retry of that
			step(describing("s", 5, 8, `{"k":3}`), conflict(7))   // not a retry
			step(describing("s", 7, 7, `{"$tb":0}`), wrote(8, 8)) // alive: nothing is added
			// the events' numbers are their own
			step(appending("s", 0, 11), wrote(1, 1))
			// metadata of the metadata stream
			step(describing("$$s", -1, 1, softDeleted), wrote(0, 0))
			step(describing("s", 8, 12, `{}`), wrote(9, 9))           // has no effect on it
			step(describing("$$s", -1, 1, softDeleted), before(0, 0)) //
			step(describing("$$$$s", -2, 1, `{}`), wrote(0, 0))       // nor does one further
			step(deleting(event.HardDelete, "s", 1), wrote(1<<63-1, 1<<63-1))
			for _, stream := range []string{"s", "$$s", "$$$$s", "$$$$$$s"} {
				for _, expected := range []int64{-4, -3, -2, -1, 0, 9} {
					step(appending(stream, expected, 1), gone())
				}
			}
			step(describing("t", -2, 1, `{}`), wrote(0, 0))
		})
	}
}

// What is kept of a write between entries must not be the caller's memory.
func TestDecideKeepsNothing(t *testing.T) {
	l := startLeader(t)
	l.write(appending("s", -2, 1))
	w := describing("s", -2, 2, `{"$tb":9223372036854775807,"key":"value"}`)
	l.write(w)
	clear(w.Events[0].Data)
	clear(w.Events)
	l.seal()
	l.write(appending("s", -2, 3))
	if document, _ := metadataOf(l, "s"); document != `{"$tb":1,"key":"value"}` {
		t.Fatalf("metadata %s", document)
	}
}

// Long names are the names of streams: their metadata streams are two bytes longer.
func TestNamesTooLong(t *testing.T) {
	longest := strings.Repeat("n", event.MaxNameBytes)
	tooLarge := outcome{err: "too large"}
	for _, stage := range stages {
		t.Run(stage.name, func(t *testing.T) {
			l := startLeader(t)
			step := func(w *event.Write, want outcome) {
				t.Helper()
				expect(t, l, w, want)
				stage.done(l)
			}
			step(appending(longest+"n", -2, 1), tooLarge)
			step(describing(longest+"n", -2, 1, `{}`), tooLarge)
			step(deleting(event.HardDelete, longest+"n", -2), tooLarge)
			step(appending(longest, -2, 1), wrote(0, 0))
			step(describing(longest, -1, 1, `{}`), wrote(0, 0))
			step(deleting(event.SoftDelete, longest, 0), wrote(0, 0))
			step(appending(longest, -1, 2), wrote(1, 1))
			w := appending("s", -2, 3, 4)
			w.Events[1].Type = longest + "n"
			step(w, tooLarge)
			w.Events[1].Type = longest
			step(w, wrote(0, 1))
			l.flush()
			check.MustEqual(t, len(l.all()), 1+1+1+2+2, "records")
		})
	}
}
