package pipeline

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

// fakeFuture is a proposal in flight that the test resolves.
type fakeFuture struct {
	entry    string // empty: a barrier
	resolved chan struct{}
	err      error
	response any
}

func (f *fakeFuture) Error() error {
	<-f.resolved
	return f.err
}

func (f *fakeFuture) Response() any { return f.response }

func (f *fakeFuture) resolve(err error, response any) {
	f.err, f.response = err, response
	close(f.resolved)
}

// fakeRaft is what the pipeline sees of raft.
type fakeRaft struct {
	proposals chan *fakeFuture
	termNow   atomic.Uint64
	leaderNow atomic.Bool
	quorumNow atomic.Pointer[Quorum]
	address   atomic.Value
	hint      chan bool
	fatal     chan error
}

func newFakeRaft() *fakeRaft {
	f := &fakeRaft{proposals: make(chan *fakeFuture, 16), hint: make(chan bool, 1), fatal: make(chan error, 16)}
	f.termNow.Store(3)
	f.leaderNow.Store(true)
	f.quorumNow.Store(&Quorum{Enough: true})
	f.address.Store("")
	return f
}

func (f *fakeRaft) start(entry string) Future {
	next := &fakeFuture{entry: entry, resolved: make(chan struct{})}
	f.proposals <- next
	return next
}

func (f *fakeRaft) dependencies() Dependencies {
	return Dependencies{
		Propose:  func(entry []byte) Future { return f.start(string(entry)) },
		Barrier:  func() Future { return f.start("") },
		Term:     f.termNow.Load,
		Leader:   f.leaderNow.Load,
		Quorum:   func() Quorum { return *f.quorumNow.Load() },
		Hint:     f.hint,
		Redirect: func() string { return f.address.Load().(string) },
		Fatal:    func(err error) { f.fatal <- err },
	}
}

// fakeDecider writes the names of streams into entries. Names that begin with
// "conflict" or "idem" write nothing; "huge" never fits.
type fakeDecider struct {
	room     int // requests that fit into an entry
	building []string
	version  map[string]int64
	resets   int
	applied  int
	fail     error
	blow     bool // entries come out larger than allowed
}

func (d *fakeDecider) Reset() error {
	d.resets++
	d.building, d.version = nil, map[string]int64{}
	return d.fail
}

func (d *fakeDecider) Decide(w *event.Write) event.Decision {
	switch {
	case strings.HasPrefix(w.Stream, "conflict"):
		return event.Decision{Err: &event.WrongExpectedVersion{Stream: w.Stream, Current: d.version[w.Stream]}}
	case strings.HasPrefix(w.Stream, "idem"):
		return event.Decision{Written: event.Written{First: 7, Last: 7, Idempotent: true}}
	case w.Stream == "huge", len(d.building) >= d.room:
		return event.Decision{Full: true}
	}
	d.building = append(d.building, w.Stream)
	n := d.version[w.Stream]
	d.version[w.Stream] = n + 1
	return event.Decision{Written: event.Written{First: n, Last: n}}
}

func (d *fakeDecider) Seal() []byte {
	if len(d.building) == 0 {
		return nil
	}
	entry := strings.Join(d.building, " ")
	d.building = nil
	if d.blow {
		return make([]byte, MaxEntryBytes+1)
	}
	return []byte(entry)
}

func (d *fakeDecider) Applied() { d.applied++ }

// rig is a pipeline on a fake raft, within a bubble of synctest.
type rig struct {
	*fakeRaft
	t       *testing.T
	p       *Pipeline
	decider *fakeDecider
	stats   *stats.Registry
}

func inRig(t *testing.T, test func(*rig)) { inRigWith(t, Options{}, test) }

func inRigWith(t *testing.T, o Options, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{fakeRaft: newFakeRaft(), t: t, decider: &fakeDecider{room: 100, version: map[string]int64{}}, stats: new(stats.Registry)}
		o.Stats = r.stats
		r.p = New(r.dependencies(), r.decider, o)
		defer func() {
			synctest.Wait()
			for {
				select {
				case f := <-r.proposals:
					f.resolve(raft.ErrLeadershipLost, nil)
				default:
					r.p.Close()
					r.emptyQueue()
					return
				}
			}
		}()
		test(r)
	})
}

// emptyQueue checks that every request was subtracted from the queue's length once, and that
// nothing is in flight.
func (r *rig) emptyQueue() {
	r.t.Helper()
	synctest.Wait()
	queue := r.p.queue.lengths
	queue.Enter(1) // It would hide a negative length.
	if f := queue.Statistics(); f.Length != 1 || f.Doing != "" {
		r.t.Errorf("the queue shows %d requests too many, and %q in flight", f.Length-1, f.Doing)
	}
	queue.Leave(1)
}

// lead lets the barrier of the election pass.
func (r *rig) lead() {
	r.t.Helper()
	r.next("").resolve(nil, nil)
	synctest.Wait()
	if l, _ := r.p.Leadership(); !l.Leading {
		r.t.Fatal("not leading after the barrier")
	}
}

// next returns what is proposed next, and fails if it is something else.
func (r *rig) next(entry string) *fakeFuture {
	r.t.Helper()
	synctest.Wait()
	select {
	case f := <-r.proposals:
		check.MustEqual(r.t, f.entry, entry, "proposed")
		return f
	default:
		r.t.Fatalf("nothing is proposed, expected %q", entry)
		return nil
	}
}

func (r *rig) nothing() {
	r.t.Helper()
	synctest.Wait()
	select {
	case f := <-r.proposals:
		r.t.Fatalf("proposed %q, expected nothing", f.entry)
	default:
	}
}

type answer struct {
	written event.Written
	err     error
}

// submit begins a write. Writes begun one after the other are queued in that order.
func (r *rig) submit(stream string) chan answer { return r.submitCtx(context.Background(), stream) }

func (r *rig) submitCtx(ctx context.Context, stream string) chan answer {
	c := make(chan answer, 1)
	go func() {
		written, err := r.p.Submit(ctx, &event.Write{Stream: stream})
		c <- answer{written, err}
	}()
	synctest.Wait()
	return c
}

// inFlight makes the node lead, with the entry of one request in flight.
func (r *rig) inFlight(stream string) (chan answer, *fakeFuture) {
	r.t.Helper()
	r.lead()
	answer := r.submit(stream)
	return answer, r.next(stream)
}

// expired is as inFlight, but no caller waits for the request any more.
func (r *rig) expired(stream string) (context.Context, *fakeFuture) {
	r.t.Helper()
	r.lead()
	ctx, cancel := context.WithCancel(context.Background())
	answer, entry := r.submitCtx(ctx, stream), r.next(stream)
	end(cancel)
	r.answered(answer, 0, event.ErrWriteTimeout)
	return ctx, entry
}

func (r *rig) confirm() chan answer {
	c := make(chan answer, 1)
	go func() { c <- answer{err: r.p.Confirm(context.Background())} }()
	synctest.Wait()
	return c
}

func (r *rig) waits(c chan answer) {
	r.t.Helper()
	synctest.Wait()
	select {
	case a := <-c:
		r.t.Fatalf("answered too early: %+v", a)
	default:
	}
}

func (r *rig) answered(c chan answer, first int64, err error) {
	r.t.Helper()
	synctest.Wait()
	select {
	case a := <-c:
		if !errors.Is(a.err, err) || (err == nil && a.written.First != first) {
			r.t.Fatalf("answered %+v, expected first %d, error %v", a, first, err)
		}
	default:
		r.t.Fatal("not answered")
	}
}

func TestLoneWriterNeverWaitsForCompany(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead()
		for i := range int64(3) {
			a := r.submit("s")
			f := r.next("s")
			r.waits(a)
			f.resolve(nil, nil)
			r.answered(a, i, nil)
		}
		if r.decider.applied != 3 || r.decider.resets != 1 {
			t.Errorf("applied %d, resets %d", r.decider.applied, r.decider.resets)
		}
	})
}

func TestRequestsGatherWhileOneEntryIsUnderWay(t *testing.T) {
	inRig(t, func(r *rig) {
		a, first := r.inFlight("a")
		b, c := r.submit("b"), r.submit("c")
		r.nothing()
		first.resolve(nil, nil)
		r.answered(a, 0, nil)
		second := r.next("b c")
		r.waits(b)
		second.resolve(nil, nil)
		r.answered(b, 0, nil)
		r.answered(c, 0, nil)
	})
}

func TestFullEntryLeavesTheRestForTheNext(t *testing.T) {
	inRig(t, func(r *rig) {
		r.decider.room = 2
		a, first := r.inFlight("a")
		var all []chan answer
		for _, s := range []string{"b", "c", "d"} {
			all = append(all, r.submit(s))
		}
		first.resolve(nil, nil)
		r.answered(a, 0, nil)
		r.next("b c").resolve(nil, nil)
		r.next("d").resolve(nil, nil)
		for _, c := range all {
			r.answered(c, 0, nil)
		}
		huge := r.submit("huge")
		r.next("").resolve(nil, nil)
		r.answered(huge, 0, event.ErrTooLarge)
	})
}

// No entry is larger than 16 MiB: segment files give very large ones back damaged, and a
// message to a follower has to hold one.
func TestRule22TooLargeEntryIsNotProposed(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead()
		r.answered(r.submit(strings.Repeat("x", MaxEntryBytes+1)), 0, event.ErrTooLarge)
		r.decider.blow = true
		r.answered(r.submit("a"), 0, event.ErrTooLarge)
		r.nothing()
		r.decider.blow = false
		b := r.submit("a")
		r.next("a").resolve(nil, nil)
		r.answered(b, 0, nil) // the decider forgot the one that was too large
	})
}

func TestRefusalsAreAnsweredOnlyWithTheirGroup(t *testing.T) {
	inRig(t, func(r *rig) {
		a, first := r.inFlight("a")
		conflict, b := r.submit("conflict"), r.submit("b")
		r.waits(conflict)
		first.resolve(nil, nil)
		r.answered(a, 0, nil)
		second := r.next("b")
		r.waits(conflict)
		second.resolve(nil, nil)
		r.answered(b, 0, nil)
		synctest.Wait()
		if got := <-conflict; !errors.As(got.err, new(*event.WrongExpectedVersion)) {
			t.Errorf("conflict answered %v", got.err)
		}
	})
}

func TestGroupWithoutBytesIsConfirmedByOneBarrier(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead()
		conflict := r.submit("conflict")
		first := r.next("")
		idem, confirm := r.submit("idem"), r.confirm()
		r.waits(conflict)
		first.resolve(nil, nil)
		synctest.Wait()
		<-conflict
		second := r.next("")
		r.waits(idem)
		second.resolve(nil, nil)
		r.answered(idem, 7, nil)
		r.answered(confirm, 0, nil)
		r.nothing()
	})
	t.Run("a term that changed meanwhile decides them again", func(t *testing.T) {
		inRig(t, func(r *rig) {
			r.lead()
			confirm := r.confirm()
			first := r.next("")
			r.termNow.Store(5)
			first.resolve(nil, nil)
			r.waits(confirm)
			r.lead()
			r.next("").resolve(nil, nil)
			r.answered(confirm, 0, nil)
		})
	})
	t.Run("the only voter needs none", func(t *testing.T) {
		inRig(t, func(r *rig) {
			r.quorumNow.Store(&Quorum{Enough: true, Alone: true})
			r.lead()
			r.answered(r.submit("idem"), 7, nil)
			r.answered(r.confirm(), 0, nil)
			r.nothing()
			// Requests that were decided on top of an entry in flight wait for that entry all the
			// same.
			a := r.submit("a")
			first := r.next("a")
			idem := r.submit("idem")
			r.waits(idem)
			first.resolve(nil, nil)
			r.answered(a, 0, nil)
			r.answered(idem, 7, nil)
		})
	})
}

// Only a proposal that began after the request confirms it, and none that ends in another term: an
// entry that was already in flight may have been committed before a write that another leader
// acknowledged.
func TestRule19ConfirmedByWhatBeganAfterwards(t *testing.T) {
	t.Run("an entry", func(t *testing.T) {
		inRig(t, func(r *rig) {
			a, first := r.inFlight("a")
			c1, c2, b := r.confirm(), r.confirm(), r.submit("b")
			first.resolve(nil, nil)
			r.answered(a, 0, nil)
			second := r.next("b")
			r.waits(c1)
			second.resolve(nil, nil)
			for _, c := range []chan answer{c1, c2, b} {
				r.answered(c, 0, nil)
			}
		})
	})
	t.Run("a barrier", func(t *testing.T) {
		inRig(t, func(r *rig) {
			c1 := r.confirm()
			r.lead() // not by the barrier that ends the election either, which began before
			r.waits(c1)
			first := r.next("")
			c2, c3 := r.confirm(), r.confirm()
			first.resolve(nil, nil)
			r.answered(c1, 0, nil)
			second := r.next("")
			r.waits(c2)
			second.resolve(nil, nil)
			r.answered(c2, 0, nil)
			r.answered(c3, 0, nil)
			r.nothing()
		})
	})
	t.Run("not in another term", func(t *testing.T) {
		inRig(t, func(r *rig) {
			r.lead()
			c := r.confirm()
			barrier := r.next("")
			r.termNow.Store(5) // deposed and elected again meanwhile
			barrier.resolve(nil, nil)
			r.waits(c)
			r.lead()
			r.next("").resolve(nil, nil)
			r.answered(c, 0, nil)
		})
	})
}

func TestRefusedEntryIsDecidedAgainInOrder(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead()
		a, b := r.submit("a"), r.submit("s")
		first := r.next("a")
		c := r.submit("s")
		first.resolve(nil, fmt.Errorf("fence: %w", event.ErrEntryRefused))
		r.waits(a)
		second := r.next("a s s")
		check.Equal(t, r.decider.resets, 2, "resets")
		second.resolve(nil, nil)
		r.answered(a, 0, nil)
		r.answered(b, 0, nil)
		r.answered(c, 1, nil)
	})
	t.Run("for ever is fatal", func(t *testing.T) {
		inRig(t, func(r *rig) {
			r.lead()
			a := r.submit("a")
			for range maxRefusals + 1 {
				r.next("a").resolve(nil, event.ErrEntryRefused)
			}
			r.answered(a, 0, event.ErrOutcomeUnknown)
			check.Equal(t, len(r.fatal), 1, "the node continues")
		})
	})
}

// Only three errors of raft mean that an entry was not written. Any other leaves the outcome
// unknown: deciding the write again would do it twice, and denying it would be a lie.
func TestRule06Outcomes(t *testing.T) {
	type outcome struct {
		name     string
		err      error
		response any
		leads    bool   // after the outcome
		address  string // of another leader
		want     error  // of the write in flight; nil: it is decided again
		building error  // of the write being built; nil: it is decided again
		fatal    bool
	}
	for _, c := range []outcome{
		{name: "not leader any more", err: raft.ErrNotLeader, want: event.ErrNotReady, building: event.ErrNotReady},
		{name: "another leader is known", err: raft.ErrNotLeader, address: "http://other:2113", want: &event.NotLeader{}, building: &event.NotLeader{}},
		{name: "not leader, and again", err: raft.ErrNotLeader, leads: true},
		{name: "transfer that failed", err: raft.ErrLeadershipTransferInProgress, leads: true},
		{name: "transfer", err: raft.ErrLeadershipTransferInProgress, want: event.ErrNotReady, building: event.ErrNotReady},
		{name: "not enqueued", err: raft.ErrEnqueueTimeout, leads: true},
		{name: "leadership lost", err: raft.ErrLeadershipLost, want: event.ErrOutcomeUnknown, building: event.ErrNotReady},
		{name: "leadership lost and won", err: raft.ErrLeadershipLost, leads: true, want: event.ErrOutcomeUnknown},
		{name: "store failed", err: errors.New("disk"), leads: true, want: event.ErrOutcomeUnknown},
		{name: "shutdown", err: raft.ErrRaftShutdown, want: event.ErrOutcomeUnknown, building: event.ErrNotReady},
		{name: "apply failed", response: errors.New("disk"), leads: true, want: event.ErrOutcomeUnknown, building: event.ErrNotReady, fatal: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inRig(t, func(r *rig) {
				a, f := r.inFlight("a")
				b := r.submit("b")
				r.leaderNow.Store(c.leads)
				r.address.Store(c.address)
				if c.leads && !c.fatal {
					r.termNow.Add(1)
				}
				f.resolve(c.err, c.response)
				time.Sleep(2 * gainRetry) // virtual
				check.MustEqual(t, len(r.fatal) > 0, c.fatal, len(r.fatal), "fatal errors")
				check := func(name string, ch chan answer, want error) {
					t.Helper()
					if want == nil {
						r.waits(ch)
						return
					}
					synctest.Wait()
					got := <-ch
					var other *event.NotLeader
					if errors.As(want, &other) {
						if !errors.As(got.err, &other) || other.Address != c.address {
							t.Errorf("%s: %v", name, got.err)
						}
					} else if !errors.Is(got.err, want) {
						t.Errorf("%s: %v instead of %v", name, got.err, want)
					}
				}
				check("in flight", a, c.want)
				check("being built", b, c.building)
				if c.building != nil {
					return
				}
				r.lead()
				again := "b"
				if c.want == nil {
					again = "a b"
				}
				r.next(again).resolve(nil, nil)
				r.answered(b, 0, nil)
				if c.want == nil {
					r.answered(a, 0, nil)
				}
			})
		})
	}
}

func TestUnknownOutcomeConcernsOnlyWhoWrote(t *testing.T) {
	inRig(t, func(r *rig) {
		x, first := r.inFlight("x")
		a, idem, confirm := r.submit("a"), r.submit("idem"), r.confirm()
		first.resolve(nil, nil)
		r.answered(x, 0, nil)
		r.next("a").resolve(raft.ErrLeadershipLost, nil)
		r.answered(a, 0, event.ErrOutcomeUnknown)
		r.waits(idem)
		time.Sleep(2 * gainRetry)
		r.lead()
		r.next("").resolve(nil, nil)
		r.answered(idem, 7, nil)
		r.answered(confirm, 0, nil)
	})
}

// Leadership is known by its term, before and after a barrier: raft merges quick changes, and a
// leader that lost and won again would keep deciding on an outdated state.
func TestRule03LeadershipIsKnownByTerm(t *testing.T) {
	inRig(t, func(r *rig) {
		barrier := r.next("")
		_, before := r.p.Leadership()
		r.termNow.Store(4) // lost and won again while the barrier passed
		barrier.resolve(nil, nil)
		synctest.Wait()
		select {
		case <-before:
			t.Fatal("led, if only for a moment, by a barrier of an older term")
		default:
		}
		a := r.submit("a")
		r.waits(a)
		time.Sleep(2 * gainRetry)
		r.lead()
		f := r.next("a")
		_, changed := r.p.Leadership()
		r.termNow.Store(9)
		r.hint <- true
		synctest.Wait()
		select {
		case <-changed:
		default:
			t.Error("a new term does not count as a change")
		}
		b := r.submit("b")
		f.resolve(nil, nil) // committed in its own term all the same
		r.answered(a, 0, nil)
		r.lead()
		if l, _ := r.p.Leadership(); !reflect.DeepEqual(l, Leadership{Leading: true, Term: 9}) {
			t.Errorf("leadership %+v", l)
		}
		r.next("b").resolve(nil, nil)
		r.answered(b, 0, nil)
	})
}

func TestFollowerRefusesAtOnce(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead()
		r.leaderNow.Store(false)
		r.answered(r.submit("a"), 0, event.ErrNotReady)
		r.answered(r.confirm(), 0, event.ErrNotReady)
		r.address.Store("https://b:2113")
		got := <-r.submit("a")
		var other *event.NotLeader
		if !errors.As(got.err, &other) || other.Address != "https://b:2113" {
			t.Errorf("answered %v", got.err)
		}
	})
}

func TestStateThatCannotBeReadDecidesNothing(t *testing.T) {
	inRig(t, func(r *rig) {
		r.decider.fail = errors.New("disk")
		a := r.submit("a")
		r.next("").resolve(nil, nil)
		r.answered(a, 0, event.ErrNotReady)
		r.decider.fail = nil
		time.Sleep(2 * gainRetry)
		r.lead()
	})
}

func TestBadWriteIsNotQueued(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead()
		got := <-r.submit("$idx-all")
		check.Says(t, got.err, "Index streams cannot be written to.")
	})
}

func TestQueueIsBounded(t *testing.T) {
	t.Run("by requests", func(t *testing.T) {
		inRigWith(t, Options{QueueRequests: 2}, func(r *rig) {
			a, f := r.inFlight("a")
			b := r.submit("b")
			r.answered(r.submit("c"), 0, event.ErrBusy)
			f.resolve(nil, nil)
			r.answered(a, 0, nil)
			c := r.submit("c")
			r.next("b").resolve(nil, nil)
			r.next("c").resolve(nil, nil)
			r.answered(b, 0, nil)
			r.answered(c, 0, nil)
			if n, bytes := r.p.queue.depth(); n != 0 || bytes != 0 {
				t.Errorf("%d requests of %d bytes remain", n, bytes)
			}
		})
	})
	t.Run("by bytes", func(t *testing.T) {
		inRigWith(t, Options{QueueBytes: 10}, func(r *rig) {
			r.lead()
			large := r.submit("larger than the bound")
			f := r.next("larger than the bound") // alone it passes
			r.answered(r.submit("c"), 0, event.ErrBusy)
			f.resolve(nil, nil)
			r.answered(large, 0, nil)
		})
	})
}

func TestExpiredRequests(t *testing.T) {
	t.Run("queued ones are withdrawn", func(t *testing.T) {
		inRig(t, func(r *rig) {
			ctx, cancel := context.WithCancel(context.Background())
			a := r.submitCtx(ctx, "a") // the barrier of the election is still in flight
			b := r.submit("b")
			end(cancel)
			r.answered(a, 0, event.ErrWriteTimeout)
			r.lead()
			r.next("b").resolve(nil, nil)
			r.answered(b, 0, nil)
		})
	})
	t.Run("those after a full entry are withdrawn", func(t *testing.T) {
		inRig(t, func(r *rig) {
			r.decider.room = 1
			ctx, cancel := context.WithCancel(context.Background())
			a, first := r.inFlight("a")
			b, c, d := r.submit("b"), r.submitCtx(ctx, "c"), r.submit("d")
			end(cancel)
			r.answered(c, 0, event.ErrWriteTimeout)
			first.resolve(nil, nil)
			r.next("b").resolve(nil, nil)
			r.next("d").resolve(nil, nil)
			for _, ch := range []chan answer{a, b, d} {
				r.answered(ch, 0, nil)
			}
			if n, _ := r.p.queue.depth(); n != 0 {
				t.Errorf("%d requests remain", n)
			}
		})
	})
	t.Run("an entry in flight continues", func(t *testing.T) {
		inRig(t, func(r *rig) {
			_, f := r.expired("a")
			f.resolve(nil, nil)
			synctest.Wait()
			check.Equal(t, r.decider.applied, 1, "entry was not applied")
			if n, _ := r.p.queue.depth(); n != 0 {
				t.Errorf("%d requests remain", n)
			}
		})
	})
	t.Run("they are not decided again", func(t *testing.T) {
		inRig(t, func(r *rig) {
			ctx, f := r.expired("a")
			f.resolve(nil, event.ErrEntryRefused)
			r.nothing()
			r.answered(r.submitCtx(ctx, "a"), 0, event.ErrWriteTimeout)
		})
	})
}

func TestReadOnly(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead()
		reason := fmt.Errorf("%w: 1 MiB left", event.ErrDiskFull)
		r.p.SetReadOnly(reason)
		r.answered(r.submit("a"), 0, event.ErrDiskFull)
		r.p.SetReadOnly(nil)
		a := r.submit("a")
		r.next("a").resolve(nil, nil)
		r.answered(a, 0, nil)
	})
}

// A transfer of leadership that raft never ends keeps this node from gaining it: the node must end.
// One that ends in time does no harm.
func TestEndlessTransfer(t *testing.T) {
	inRig(t, func(r *rig) {
		refuse := func(long time.Duration) {
			for begun := time.Now(); time.Since(begun) < long && len(r.fatal) == 0; time.Sleep(2 * gainRetry) { // virtual
				r.next("").resolve(raft.ErrLeadershipTransferInProgress, nil)
			}
		}
		refuse(endlessTransfer)
		check.Equal(t, len(r.fatal), 0, "fatal errors of a transfer that ends")
		r.lead()
		r.termNow.Add(1)
		r.hint <- true
		refuse(endlessTransfer)
		check.Equal(t, len(r.fatal), 0, "fatal errors after a new begin")
		refuse(time.Second)
		check.Is(t, <-r.fatal, errEndlessTransfer, "fatal error")
	})
}
