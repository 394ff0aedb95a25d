package torture

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// scene is a run made by hand: what clients did and what nodes showed.
type scene struct {
	t    *testing.T
	ids  identity
	hist *history
	find *findings
	book *book
}

const scenePrefix = "torture-x-"

// then is when events of scenes were written.
var then = time.Unix(1, 0).UTC()

func newScene(t *testing.T) *scene {
	t.Helper()
	start := time.Now()
	s := &scene{t: t, ids: identity{tag: 0xfeed}, find: newFindings(start)}
	s.hist = newHistory(start, 1000)
	s.book = newBook(s.ids, s.find, scenePrefix, 0)
	return s
}

// stream is one of the run.
func (s *scene) stream(name string) *stream { return s.book.stream(scenePrefix + name) }

// client opens a journal.
func (s *scene) client() *journal { return s.hist.journal() }

// op adds an operation and returns the ref of its first event.
func (s *scene) op(j *journal, stream string, o op) ref {
	o.stream = s.stream(stream)
	if o.kind == opAppend && o.count == 0 {
		o.count = 1
	}
	first, _ := j.begin(o)
	return first
}

// wrote is an append that was acknowledged.
func (s *scene) wrote(j *journal, stream string, expected, number, call, ret int64) ref {
	return s.op(j, stream, op{outcome: done, expected: expected, number: number, call: call, ret: ret})
}

// shown makes the entry that a node shows of an event.
func (s *scene) shown(r ref, stream string, number int64) entry {
	return entry{ID: s.ids.id(r).String(), Type: eventType, Number: number, Stream: scenePrefix + stream, Data: s.ids.data(r), Time: then}
}

// eventSize is how far apart events of a scene are.
const eventSize = 100

// log lets a node show the log from its beginning.
func (s *scene) log(node string, entries ...entry) {
	s.book.logForward(place{node: node}, 0, entries, int64(len(entries))*eventSize, true)
}

// kinds returns the kinds of violations found, each once.
func (s *scene) kinds() []string {
	list, _ := s.find.list()
	var kinds []string
	for _, v := range list {
		if !slices.Contains(kinds, v.Kind) {
			kinds = append(kinds, v.Kind)
		}
	}
	return kinds
}

// expect demands exactly these kinds of violations.
func (s *scene) expect(kinds ...string) {
	s.t.Helper()
	slices.Sort(kinds)
	if got := s.kinds(); !slices.Equal(got, kinds) {
		list, _ := s.find.list()
		text := ""
		for _, v := range list {
			text += fmt.Sprintf("\n%s: %s", v.Kind, v.Text)
		}
		s.t.Errorf("found %q, want %q%s", got, kinds, text)
	}
}
