package projection_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/memdb"
	"github.com/annalsdb/annals/projection"
)

// These tests run with real runs and scripts.

// site is a service over a store in memory, with a projection "p".
type site struct {
	*testing.T
	*projection.Service
	store *memdb.DB
	n     int // events that were appended
}

func newSite(t *testing.T) *site {
	s := &site{T: t, store: memdb.Open(t, memdb.Options{})}
	s.lead()
	return s
}

// lead begins a term, after the one that there was, and waits until all is as before.
func (s *site) lead() {
	s.begin()
	synctest.Wait()
}

func (s *site) begin() {
	if s.Service != nil {
		s.Stop()
	}
	s.Service = projection.New(projection.Options{
		MaxStateSize: 1 << 20,
		Store:        s.store, May: func(context.Context, projection.Identity, string, bool) error { return nil },
		Links: func(context.Context, projection.Identity) event.LinkReader { return event.EveryLink },
	})
	s.Start(context.Background())
}

// add appends events, and waits until they are handled.
func (s *site) add(n int) {
	s.append(n)
	synctest.Wait()
}

// append appends events to the sources a-1 and a-2, and a link to each to their category.
func (s *site) append(n int) {
	for range n {
		stream := fmt.Sprintf("a-%d", 1+s.n%2)
		put := func(stream, eventType, data string) {
			s.store.Put(event.Write{Stream: stream, ExpectedVersion: event.AnyVersion, Events: []event.Proposed{{
				ID: event.ID(uuid.New()), Type: eventType, Flags: event.FlagJSON, Data: []byte(data)}}})
		}
		put(stream, "T", fmt.Sprintf(`{"n":%d}`, s.n))
		put("$ce-a", event.TypeLink, fmt.Sprintf("%d@%s", s.store.Info(stream).Last, stream))
		s.n++
	}
}

// script counts events of a source, and emits each under a tag. With ! after the source it also
// writes results.
func script(source, tag string) string {
	source, isOutput := strings.CutSuffix(source, "!")
	if isOutput {
		return script(source, tag) + ".outputState()"
	}
	return source + `.when({$init: () => ({n: 0}), T(s, e) { s.n++; s.tag = '` + tag + `';
		emit('out-' + e.data.n % 3, '` + tag + `', {n: e.data.n}); }})`
}

func (s *site) create(text string, edit ...func(*projection.Creation)) {
	s.Helper()
	c := projection.Creation{Name: "p", Mode: projection.Continuous, Query: text, Enabled: true, Emit: true, By: admin}
	for _, e := range edit {
		e(&c)
	}
	check.Value(s.Create(s.Context(), c)).Must(s)
	synctest.Wait()
}

func (s *site) rebuild(text string) {
	s.Helper()
	check.Must(s, s.Rebuild(s.Context(), "p", projection.Update{Query: text}, admin))
	synctest.Wait()
}

func (s *site) seen(compare bool) projection.Rebuild {
	s.Helper()
	return check.Value(s.RebuildStatus(s.Context(), "p", compare, true, admin)).Must(s)
}

func (s *site) status() string {
	s.Helper()
	return check.Value(s.Statistics("p")).Must(s).Status
}

// emitted returns the tags of what was emitted, in the order of the numbers of their events. Each
// must be there once.
func (s *site) emitted() (tags []string) {
	s.Helper()
	found := map[int]string{}
	for i := range 3 {
		last := -1
		for _, r := range s.store.All(fmt.Sprintf("out-%d", i)) {
			n := 0
			check.Value(fmt.Sscanf(string(r.Data), `{"n":%d}`, &n)).Must(s)
			if found[n] != "" || n <= last {
				s.Fatalf("event %d was emitted again, or late", n)
			}
			found[n], last = r.Type, n
		}
	}
	for i, text := range s.store.Data("$projections-p-result") {
		if want := fmt.Sprintf(`{"n":%d,"tag":"%s"}`, i+1, found[i]); text != want {
			s.Fatalf("result %d is %s, want %s", i, text, want)
		}
	}
	for n := range s.n {
		if found[n] == "" {
			s.Fatalf("of event %d nothing was emitted: %v", n, found)
		}
		tags = append(tags, found[n])
	}
	return tags
}

// sources are kinds of sources that a projection and its rebuild may have.
var rebuildSources = map[string][2]string{
	"log":              {"fromAll()", "fromAll().foreachStream()"},
	"category":         {"fromCategory('a').foreachStream()", "fromCategory('a').foreachStream()"},
	"results":          {"fromStreams('a-1', 'a-2')!", "fromStreams('a-1', 'a-2')!"},
	"streams":          {"fromStreams('a-1', 'a-2')", "fromStreams('a-2', 'a-1').partitionBy(e => e.streamId)"},
	"streams and more": {"fromStreams('a-1', 'a-2')", "fromStreams('a-2', 'a-1', 'b')"},
}

// site runs a test in a bubble.
func onSite(t *testing.T, f func(s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		defer func() { s.Stop() }()
		f(s)
	})
}

// A second version takes over where the first stops.
func TestRebuild(t *testing.T) {
	for name, sources := range rebuildSources {
		t.Run(name, func(t *testing.T) {
			onSite(t, func(s *site) {
				s.add(20)
				s.create(script(sources[0], "A"))
				s.rebuild(script(sources[1], "B"))
				check.Equal(s, s.seen(false).Status, "Ready", "before the first checkpoint")
				check.Equal(s, check.Value(s.Statistics("p")).Must(s).Rebuild, "Ready", "in the statistics")
				s.add(10)
				check.Must(s, s.SwapRebuild(s.Context(), "p", admin))
				s.add(10)
				check.Slice(s, s.emitted(), slices.Concat(slices.Repeat([]string{"A"}, 30), slices.Repeat([]string{"B"}, 10)), "emitted")
				check.Equal(s, s.status(), "Running", "status")
				check.Equal(s, s.seen(false).Status, "Swapped", "status of the rebuild")
				check.Must(s, s.SwapRebuild(s.Context(), "p", admin))
				partition := ""
				if strings.Contains(sources[1], "foreach") || strings.Contains(sources[1], "partitionBy") {
					partition = "a-1"
				}
				s.lead()
				state := check.Value(s.State(s.Context(), "p", partition, admin)).Must(s)
				check.Equal(s, string(state.Text), fmt.Sprintf(`{"n":%d,"tag":"B"}`, map[bool]int{true: 40, false: 20}[partition == ""]), "state")
				for stream := range s.store.Dump() {
					if info := s.store.Info(stream); strings.HasSuffix(stream, "checkpoint") && strings.HasPrefix(stream, "$projections-p-") && info.Exists() {
						t.Errorf("stream %s is left", stream)
					}
				}
				// Versions that know no rebuilds run it again after the second, and not before.
				for i, handler := range []string{"JS states=$rebuilt-6-0", "JS", "JS states=$rebuilt-6-4"} {
					stored := s.store.Data("$projections-p")
					check.Contains(s, stored[len(stored)-1], fmt.Sprintf(`"handlerType":%q`, handler))
					tag := string(rune('C' + i))
					s.rebuild(script(sources[1], tag))
					check.Must(s, s.SwapRebuild(s.Context(), "p", admin))
					s.add(5)
					check.Slice(s, s.emitted()[40+5*i:], slices.Repeat([]string{tag}, 5), "emitted after another swap")
				}
			})
		})
	}
}

func (s *site) refused(err error, want string) {
	s.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		s.Errorf("error %v, want %s", err, want)
	}
}

// Of a stream that only the second version reads, all comes after the swap, also what is older.
func TestRebuildReadsMore(t *testing.T) {
	onSite(t, func(s *site) {
		s.add(5)
		s.store.Append("b", "U", "{}", "")
		s.create(script("fromStreams('a-1', 'a-2')", "A"))
		text := strings.Replace(script("fromStreams('a-1', 'a-2', 'b')", "B"), "T(s", "U(s, e) { s.u = 1; emit('out-u', 'B', {}) }, T(s", 1)
		s.rebuild(text)
		s.add(5)
		s.store.Append("b", "U", "{}", "")
		check.Equal(s, len(s.store.Data("out-u")), 0, "before the swap")
		check.Must(s, s.SwapRebuild(s.Context(), "p", admin))
		s.add(5)
		check.Equal(s, len(s.store.Data("out-u")), 2, "after it")
		check.Equal(s, strings.Join(s.emitted(), ""), "AAAAAAAAAABBBBB", "emitted")
	})
}

// A first version that does not run is swapped at its checkpoint, if it emitted nothing after that.
func TestRebuildOfOneThatRests(t *testing.T) {
	command := func(c projection.Command) func(s *site) error {
		return func(s *site) error { return s.Command(s.Context(), "p", c, admin) }
	}
	for name, c := range map[string]struct {
		text     string
		rest     func(s *site) error
		leads    bool // another node leads then
		isUnsure bool // the swap is refused, until it was started again
		status   string
		tags     string // of 20 events; after the swap it is enabled
	}{
		"disabled": {text: script("fromAll()", "A"), rest: command(projection.Disable), status: "Stopped", tags: "AAAAAAAAAABBBBBBBBBB"},
		"disabled, on another node": {
			text: script("fromAll()", "A"), rest: command(projection.Disable), leads: true, isUnsure: true, status: "Running", tags: "AAAAAAAAAABBBBBBBBBB"},
		"faulted": {
			text:  strings.Replace(script("fromAll()", "A"), "s.n++", "if (e.data.n === 7) throw 'the seventh'; s.n++", 1),
			rest:  func(*site) error { return nil },
			leads: true, status: "Running", tags: "AAAAAAABBBBBBBBBBBBB"},
		"faulted by the size of its state": {
			text:  strings.Replace(script("fromAll()", "A"), "s.n++", "if (e.data.n === 7) s.big = 'x'.repeat(2 << 20); s.n++", 1),
			rest:  func(*site) error { return nil },
			leads: true, status: "Running", tags: "AAAAAAABBBBBBBBBBBBB"},
		"aborted":                  {text: script("fromAll()", "A"), rest: command(projection.Abort), isUnsure: true, status: "Running", tags: "AAAAAAAAAABBBBBBBBBB"},
		"aborted, on another node": {text: script("fromAll()", "A"), rest: command(projection.Abort), leads: true, isUnsure: true, status: "Running", tags: "AAAAAAAAAABBBBBBBBBB"},
	} {
		t.Run(name, func(t *testing.T) {
			onSite(t, func(s *site) {
				s.create(c.text)
				s.add(10)
				check.Must(s, c.rest(s))
				s.rebuild(script("fromAll()", "B"))
				if c.leads {
					s.lead()
				}
				if c.isUnsure {
					was := s.status()
					s.refused(s.SwapRebuild(s.Context(), "p", admin), "The projection may have emitted after its last checkpoint. Start it")
					check.Equal(s, s.status(), was, "status")
					check.Must(s, command(projection.Enable)(s))
					synctest.Wait()
				}
				check.Must(s, s.SwapRebuild(s.Context(), "p", admin))
				synctest.Wait()
				check.Equal(s, s.status(), c.status, "status")
				s.add(10)
				check.Must(s, command(projection.Enable)(s))
				synctest.Wait()
				check.Equal(s, strings.Join(s.emitted(), ""), c.tags, "emitted")
			})
		})
	}
}

// A first version that handles once more what another node had emitted for is not swapped before it
// has done so.
func TestSwapOfOneThatIsBehind(t *testing.T) {
	onSite(t, func(s *site) {
		s.create(script("fromAll()", "A"), enabledNo)
		config := projection.DefaultConfig()
		config.EmitEnabled, config.PendingEventsThreshold = true, 1
		check.Must(s, s.SetConfig(s.Context(), "p", config, admin))
		check.Must(s, s.Command(s.Context(), "p", projection.Enable, admin))
		s.add(10)
		s.rebuild(script("fromAll()", "B"))
		s.store.BeforeInfo.Set(func(_ context.Context, stream string) error {
			if strings.HasPrefix(stream, "out-") { // It is compared before more is handled.
				time.Sleep(time.Second)
			}
			return nil
		})
		s.begin()
		time.Sleep(100 * time.Millisecond)
		check.Equal(s, s.status()+" "+s.seen(false).Status, "Running/Paused Running", "status")
		s.refused(s.SwapRebuild(s.Context(), "p", admin), "The projection may have emitted after its last checkpoint. Start it")
		time.Sleep(10 * time.Second)
		check.Must(s, s.SwapRebuild(s.Context(), "p", admin))
		s.add(10)
		time.Sleep(10 * time.Second)
		check.Equal(s, strings.Join(s.emitted(), ""), "AAAAAAAAAABBBBBBBBBB", "emitted")
		check.Equal(s, s.status(), "Running", "status")
	})
}

// The end of the term ends a comparison.
func TestEndWhileComparing(t *testing.T) {
	onSite(t, func(s *site) {
		s.create(script("fromAll()", "A"))
		s.rebuild(script("fromAll()", "B"))
		s.store.BeforeInfo.Set(func(ctx context.Context, stream string) error {
			if _, isBound := ctx.Deadline(); isBound { // Of a comparison.
				<-ctx.Done()
			}
			return ctx.Err()
		})
		answer := make(chan error, 1)
		go func() {
			_, err := s.RebuildStatus(context.Background(), "p", true, false, admin)
			answer <- err
		}()
		synctest.Wait()
		began := time.Now()
		s.Stop()
		check.Equal(s, time.Since(began), 0, "time to stop")
		s.refused(<-answer, "The projection is being started or stopped")
	})
}

// What a rebuild, and a projection that is being rebuilt, refuse.
func TestRebuildRefusals(t *testing.T) {
	onSite(t, func(s *site) {
		s.add(5)
		text := script("fromAll()", "A")
		s.create(text)
		s.create(text, func(c *projection.Creation) {
			c.Name, c.Mode, c.Emit, c.Enabled = "once", projection.OneTime, false, false
		})
		for _, c := range []struct {
			of, text, want string
			by             projection.Identity
		}{
			{"nothing", text, "no such projection", admin},
			{"p", text, event.ErrNotAuthorized.Error(), somebody},
			{"once", text, "Only a continuous projection can be rebuilt", admin},
			{"$by_category", "first\n-", "A system projection cannot be rebuilt", admin},
			{"p", "fromAll().", "The query cannot be prepared: ", admin},
			{"p", script("fromStream('a-1')", "B"), "The query reads another kind of source than the projection: ", admin},
		} {
			s.refused(s.Rebuild(s.Context(), c.of, projection.Update{Query: c.text}, c.by), c.want)
		}
		for _, name := range []string{"$rebuilt", "$rebuilt-7"} {
			_, err := s.Create(s.Context(), projection.Creation{Name: name, Mode: projection.Continuous, Query: text, By: admin})
			s.refused(err, "Names that begin with $rebuilt are those of rebuilds")
		}
		_, err := s.Create(s.Context(), projection.Creation{Name: "other", Type: "JS states=p", Mode: projection.Continuous, Query: text, By: admin})
		s.refused(err, "The type of a projection does not name its states")
		for _, do := range []func(context.Context, string, projection.Identity) error{s.SwapRebuild, s.EndRebuild} {
			check.Is(s, do(s.Context(), "p", admin), projection.ErrNoRebuild)
			check.Is(s, do(s.Context(), "p", somebody), event.ErrNotAuthorized)
		}
		_, err = s.RebuildStatus(s.Context(), "p", false, false, admin)
		check.Is(s, err, projection.ErrNoRebuild)

		s.rebuild(script("fromAll()", "B"))
		s.rebuild(script("fromAll()", "B")) // The same request once more.
		s.refused(s.Rebuild(s.Context(), "p", projection.Update{Query: text}, admin), "The projection is being rebuilt already")
		for _, err := range []error{
			s.Command(s.Context(), "p", projection.Reset, admin), s.UpdateQuery(s.Context(), "p", projection.Update{Query: text}, admin),
		} {
			s.refused(err, "The projection is being rebuilt. Swap or end")
			_, isConflict := errors.AsType[*projection.Conflict](err)
			check.Equal(s, isConflict, true, "conflict")
		}
		check.Must(s, s.Command(s.Context(), "p", projection.Disable, admin))
		check.Must(s, s.Command(s.Context(), "p", projection.Enable, admin))
		check.Must(s, s.EndRebuild(s.Context(), "p", admin))
		synctest.Wait()
		check.Is(s, s.EndRebuild(s.Context(), "p", admin), projection.ErrNoRebuild)
		for stream := range s.store.Dump() {
			if info := s.store.Info(stream); strings.HasPrefix(stream, "$projections-$rebuilt") && strings.HasSuffix(stream, "checkpoint") && info.Exists() {
				s.Errorf("stream %s is left", stream)
			}
		}
		check.Must(s, s.Command(s.Context(), "p", projection.Reset, admin))
	})
}

// So many rebuilds run at once, also if more are asked for together; the next has to wait until one
// ends.
func TestTooManyRebuilds(t *testing.T) {
	onSite(t, func(s *site) {
		rebuild := func(name string) error {
			return s.Rebuild(s.Context(), name, projection.Update{Query: script("fromAll()", "B")}, admin)
		}
		answers := make(chan error, 70)
		for i := range cap(answers) {
			name := fmt.Sprint("p", i)
			s.create(script("fromAll()", "A"), func(c *projection.Creation) { c.Name = name })
		}
		for i := range cap(answers) {
			go func() { answers <- rebuild(fmt.Sprint("p", i)) }()
		}
		refused := 0
		for range cap(answers) {
			if err := <-answers; err != nil {
				s.refused(err, "64 projections are being rebuilt, which is the most. Swap or end one of the rebuilds first")
				refused++
			}
		}
		var begun, others []string
		for i := range cap(answers) {
			name := fmt.Sprint("p", i)
			if check.Value(s.Statistics(name)).Must(s).Rebuild == "" {
				others = append(others, name)
			} else {
				begun = append(begun, name)
			}
		}
		check.Equal(s, len(others), refused, "are not rebuilt")
		for len(begun) < 64 { // Some may have been refused for others that were refused, too.
			check.Must(s, rebuild(others[0]))
			begun, others = append(begun, others[0]), others[1:]
		}
		check.Equal(s, len(begun), 64, "rebuilds")
		s.lead()
		s.refused(rebuild(others[0]), "64 projections are being rebuilt")
		check.Must(s, rebuild(begun[0])) // The same request once more.
		check.Must(s, s.EndRebuild(s.Context(), begun[0], admin))
		check.Must(s, rebuild(others[0]))
	})
}

// The second version faults, and is shown so; the first continues. Deleted with the projection, the
// second leaves nothing.
func TestRebuildFaults(t *testing.T) {
	onSite(t, func(s *site) {
		s.create(`fromAll().when({$init: () => ({n: 0}), T(s) { s.n++ }})`)
		s.rebuild(`fromAll().when({T(s, e) { if (e.data.n === 7) throw 'the seventh' }})`)
		s.add(8)
		check.Must(s, s.Command(s.Context(), "p", projection.Disable, admin))
		check.Must(s, s.Command(s.Context(), "p", projection.Enable, admin))
		synctest.Wait()
		for range 2 {
			r := s.seen(false)
			check.Equal(s, r.Status, "Faulted", "status of the rebuild")
			check.Contains(s, r.Reason, "the seventh")
			s.refused(s.SwapRebuild(s.Context(), "p", admin), "The rebuild has faulted: ")
			_, err := s.RebuildStatus(s.Context(), "p", true, false, admin)
			s.refused(err, "The rebuild has faulted: ")
			s.add(1)
			check.Equal(s, s.status(), "Running", "status")
			s.lead()
		}
		check.Must(s, s.Command(s.Context(), "p", projection.Disable, admin))
		check.Must(s, s.Delete(s.Context(), "p", projection.DeleteOptions{CheckpointStream: true}, admin))
		synctest.Wait()
		for stream := range s.store.Dump() {
			if info := s.store.Info(stream); strings.HasSuffix(stream, "checkpoint") && info.Exists() {
				s.Errorf("stream %s is left", stream)
			}
		}
	})
}

// A swap that does not come about leaves the first as it was, and can be tried again.
func TestSwapBacksOut(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(w *event.Write, over <-chan struct{}) error
		want string
	}{
		"the second version hangs": {func(w *event.Write, over <-chan struct{}) error {
			if strings.HasPrefix(w.Stream, "$projections-$rebuilt") {
				<-over
			}
			return nil
		}, "The rebuild has not caught up"},
		"the swap is not stored": {func(w *event.Write, _ <-chan struct{}) error {
			if w.Stream == "$projections-p" {
				return event.ErrDiskFull
			}
			return nil
		}, event.ErrDiskFull.Error()},
		"the first cannot stop": {func(w *event.Write, _ <-chan struct{}) error {
			if w.Stream == "$projections-p-checkpoint" {
				return event.ErrNotAuthorized
			}
			return nil
		}, "The projection could not be stopped. Nothing was swapped"},
	} {
		t.Run(name, func(t *testing.T) {
			onSite(t, func(s *site) {
				s.create(script("fromAll()", "A"))
				s.rebuild(script("fromAll()", "B"))
				s.add(10)
				over := make(chan struct{})
				s.store.BeforeWrite.Set(func(_ context.Context, w *event.Write) error { return c.fail(w, over) })
				began := time.Now()
				s.refused(s.SwapRebuild(s.Context(), "p", admin), c.want)
				if took := time.Since(began); took > 25*time.Second {
					t.Errorf("the answer came after %v, and clients wait 30 seconds", took)
				}
				s.store.BeforeWrite.Set(nil)
				close(over)
				time.Sleep(time.Hour)
				synctest.Wait()
				if name == "the first cannot stop" {
					check.Equal(s, s.status(), "Faulted (Enabled)", "status")
					check.Must(s, s.Command(s.Context(), "p", projection.Enable, admin))
					synctest.Wait() // Until it reads.
				}
				check.Equal(s, s.status(), "Running", "status")
				s.add(5)
				n := s.n
				check.Must(s, s.SwapRebuild(s.Context(), "p", admin))
				s.add(5)
				tags := strings.Join(s.emitted(), "")
				check.Equal(s, tags, strings.Repeat("A", n)+strings.Repeat("B", 5), "emitted")
			})
		})
	}
}

// An event that makes no sense in the stream of the rebuilds faults that projection alone, which
// keeps its definition. Events of other types are passed over.
func TestRebuildUnread(t *testing.T) {
	for eventType, status := range map[string]string{"$ProjectionRebuild": "Faulted", "Other": "Running"} {
		t.Run(eventType, func(t *testing.T) {
			onSite(t, func(s *site) {
				s.create(script("fromAll()", "A"))
				s.rebuild(script("fromAll()", "B"))
				s.store.Append("$projections-$rebuilt-6", eventType, "x", "")
				check.Must(s, s.SwapRebuild(s.Context(), "p", admin))
				synctest.Wait()
				s.rebuild(script("fromAll()", "C"))
				s.store.Append("$projections-$rebuilt-6", eventType, "x", "")
				s.lead()
				check.Equal(s, s.status(), status, "status")
				check.Must(s, s.Command(s.Context(), "p", projection.Enable, admin))
				s.add(3)
				check.Equal(s, s.status(), "Running", "status")
				check.Equal(s, strings.Join(s.emitted(), ""), "BBB", "emitted")
				check.Equal(s, check.Value(s.Statistics("p")).Must(s).CheckpointsOf, "$rebuilt-6-0", "name of the checkpoints")
			})
		})
	}
}

// hold has deletions of streams wait until the function that it returns is called.
func (s *site) hold() (release func()) {
	over := make(chan struct{})
	s.store.BeforeWrite.Set(func(ctx context.Context, w *event.Write) error {
		if w.Kind != event.SoftDelete {
			return nil
		}
		select {
		case <-over:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	return sync.OnceFunc(func() {
		s.store.BeforeWrite.Set(nil)
		close(over)
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

// left are the streams of checkpoints that are there.
func (s *site) left() (names []string) {
	for stream := range s.store.Dump() {
		if info := s.store.Info(stream); strings.HasPrefix(stream, "$projections-") && strings.HasSuffix(stream, "checkpoint") && info.Exists() {
			names = append(names, stream)
		}
	}
	slices.Sort(names)
	return names
}

// A projection is deleted while the checkpoints of its first version are being deleted. That ends
// before there can be another projection of its name, which has checkpoints in the same streams.
func TestClearingEndsWithTheProjection(t *testing.T) {
	onSite(t, func(s *site) {
		text := script("fromAll().foreachStream()", "A")
		s.add(10)
		s.create(text)
		s.rebuild(text)
		release := s.hold()
		check.Must(s, s.SwapRebuild(s.Context(), "p", admin))
		check.Must(s, s.Command(s.Context(), "p", projection.Disable, admin))
		check.Must(s, s.Delete(s.Context(), "p", projection.DeleteOptions{}, admin))
		synctest.Wait()
		again := projection.Creation{Name: "p", Mode: projection.Continuous, Query: `fromAll().foreachStream().when({$init: () => ({n: 0}), T(s) { s.n++ }})`, Enabled: true, By: admin}
		if _, err := s.Create(s.Context(), again); err != nil {
			s.refused(err, "Duplicate projection names")
			release()
			check.Value(s.Create(s.Context(), again)).Must(s)
		}
		synctest.Wait()
		check.Must(s, s.Command(s.Context(), "p", projection.Disable, admin))
		release()
		s.lead()
		for _, partition := range []string{"a-1", "a-2"} {
			state := check.Value(s.State(s.Context(), "p", partition, admin)).Must(s)
			check.Equal(s, string(state.Text), `{"n":5}`, partition)
		}
	})
}

// A node dies while it deletes a projection, before the checkpoints that are not used any more are
// gone. The next node deletes both, of a first swap and of a second.
func TestClearingOfDeleted(t *testing.T) {
	for swaps := 1; swaps <= 2; swaps++ {
		onSite(t, func(s *site) {
			text := script("fromAll().foreachStream()", "A")
			s.add(4)
			s.create(text)
			for i := range swaps {
				s.rebuild(text)
				if i == swaps-1 {
					s.hold()
				}
				check.Must(s, s.SwapRebuild(s.Context(), "p", admin))
				synctest.Wait()
			}
			check.Must(s, s.Command(s.Context(), "p", projection.Disable, admin))
			check.Must(s, s.Delete(s.Context(), "p", projection.DeleteOptions{CheckpointStream: true}, admin))
			s.store.BeforeWrite.Set(nil)
			s.lead()
			check.Slice(s, s.left(), nil, "streams that are left")
		})
	}
}

// States are compared at one position, also while the first continues.
func TestRebuildComparison(t *testing.T) {
	for name, text := range map[string]string{
		"same":     `fromAll().foreachStream().when({$init: () => ({n: 0, m: 1}), T(s) { s.n++ }})`,
		"order":    `fromAll().foreachStream().when({$init: () => ({m: 1, n: 0}), T(s) { s.n++ }})`,
		"one":      `fromAll().foreachStream().when({$init: () => ({n: 0, m: 1}), T(s, e) { s.n++; if (e.streamId === 'a-2') s.m = 2 }})`,
		"results":  `fromAll().foreachStream().when({$init: () => ({n: 0, m: 1}), T(s) { s.n++ }}).transformBy(s => s.n)`,
		"no state": `fromAll().when({$init: () => ({n: 0, m: 1}), T(s) { s.n++ }})`,
	} {
		t.Run(name, func(t *testing.T) {
			onSite(t, func(s *site) {
				s.create(`fromAll().foreachStream().when({$init: () => ({n: 0, m: 1}), T(s) { s.n++ }})`)
				s.rebuild(text)
				s.add(9)
				check.Equal(s, s.seen(true).Comparison.Compared, int64(1), "before the first checkpoint")
				check.Must(s, s.Command(s.Context(), "p", projection.Disable, admin))
				check.Must(s, s.Command(s.Context(), "p", projection.Enable, admin))
				s.add(5)
				c := s.seen(true).Comparison
				var differ []string
				for _, d := range c.Partitions {
					differ = append(differ, fmt.Sprintf("%s %s %s | %s %s", d.Partition, d.Running.State, d.Running.Result, d.Rebuilt.State, d.Rebuilt.Result))
				}
				check.Slice(s, differ, map[string][]string{
					"one":      {`a-2 {"n":4,"m":1} {"n":4,"m":1} | {"n":4,"m":2} {"n":4,"m":2}`},
					"results":  {`a-1 {"n":5,"m":1} {"n":5,"m":1} | {"n":5,"m":1} 5`, `a-2 {"n":4,"m":1} {"n":4,"m":1} | {"n":4,"m":1} 4`},
					"no state": {`   | {"n":9,"m":1} {"n":9,"m":1}`, `a-1 {"n":5,"m":1} {"n":5,"m":1} |  `, `a-2 {"n":4,"m":1} {"n":4,"m":1} |  `},
				}[name])
				check.Equal(s, fmt.Sprint(c.Compared, c.Differing, c.Moved, c.Complete), fmt.Sprint(3, len(differ), 0, true), "counts")
			})
		})
	}
}

// The node loses its leadership at each write, under load; the requests are repeated.
func TestRebuildOverCrashes(t *testing.T) {
	for name, sources := range rebuildSources {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			for at, isOver := int64(1), false; !isOver; at += 1 + rng.Int64N(5) {
				isDone := rng.IntN(2) == 0
				onSite(t, func(s *site) { isOver = !s.crash(sources, at, isDone, rng) })
				if t.Failed() {
					t.Fatalf("at write %d, done %t", at, isDone)
				}
			}
		})
	}
}

// crash rebuilds a projection, and loses the leadership at a write, before or after it is done, and
// later once more. It reports whether it came to that.
func (s *site) crash(sources [2]string, at int64, isDone bool, rng *rand.Rand) (crashed bool) {
	s.create(script(sources[0], "A"), enabledNo)
	config := projection.DefaultConfig()
	config.EmitEnabled, config.CheckpointHandledThreshold = true, 3
	check.Must(s, s.SetConfig(s.Context(), "p", config, admin))
	s.add(10)
	var left, crashes atomic.Int64
	left.Store(at)
	s.store.SetFault(func(int64, *event.Write) (before, after error) {
		switch n := left.Add(-1); {
		case n == 0 && isDone:
			return nil, &event.NotLeader{}
		case n <= 0:
			return &event.NotLeader{}, nil
		}
		return nil, nil
	})
	// insist repeats a request until it is done, on the node that leads then.
	insist := func(what string, do func() error) {
		s.Helper()
		for try := 0; ; try++ {
			err := do()
			if err == nil && left.Load() > 0 {
				return
			}
			if left.Load() <= 0 {
				crashes.Add(1)
				left.Store(1 + rng.Int64N(30))
				if crashes.Load() > 1 {
					left.Store(1 << 40)
				}
				s.begin()
			}
			if try > 1000 {
				s.Fatalf("%s: %v", what, err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-time.After(time.Millisecond):
				if s.n < 60 {
					s.append(1)
				}
			case <-stop:
				return
			}
		}
	}()
	insist("enable", func() error { return s.Command(s.Context(), "p", projection.Enable, admin) })
	insist("rebuild", func() error {
		return s.Rebuild(s.Context(), "p", projection.Update{Query: script(sources[1], "B")}, admin)
	})
	time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	if rng.IntN(3) == 0 {
		insist("abort", func() error { return s.Command(s.Context(), "p", projection.Abort, admin) })
	}
	insist("swap", func() error {
		err := s.SwapRebuild(s.Context(), "p", admin)
		if _, isConflict := errors.AsType[*projection.Conflict](err); isConflict {
			return errors.Join(err, s.Command(s.Context(), "p", projection.Enable, admin))
		}
		return err
	})
	insist("enable again", func() error { return s.Command(s.Context(), "p", projection.Enable, admin) })
	time.Sleep(5 * time.Millisecond)
	close(stop)
	<-stopped
	last := s.n
	s.add(3)
	insist("rest", func() error { synctest.Wait(); return nil })
	time.Sleep(time.Minute)
	synctest.Wait()
	check.Equal(s, s.status(), "Running", "status")
	tags := s.emitted()
	if !slices.IsSorted(tags) || tags[last] != "B" || tags[0] != "A" {
		s.Errorf("emitted by %v", tags)
	}
	partition := ""
	if sources[0] != sources[1] && strings.Contains(sources[1], "y(") || strings.Contains(sources[1], "foreach") {
		partition = "a-1"
	}
	state := check.Value(s.State(s.Context(), "p", partition, admin)).Must(s)
	n := s.n
	if partition != "" {
		n = (n + 1) / 2
	}
	check.Equal(s, string(state.Text), fmt.Sprintf(`{"n":%d,"tag":"B"}`, n), "state")
	return crashes.Load() > 0
}
