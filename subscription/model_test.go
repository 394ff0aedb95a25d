package subscription_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

// model is what consumers of one group did and saw, and what must hold of it.
type model struct {
	*bench
	settings subscription.Settings
	takes    func(r *event.Record) bool // which records of the store are the source's
	start    int64                      // where the group begins
	held     map[event.ID]held          // handed out, and by all one can know still out
	// keys of held and late, in the order in which they were handed out
	order    []event.ID
	answered map[event.ID]bool // acknowledged or skipped, by the id of the message
	numbers  map[int64]bool    // likewise, by the number: which one of the source's it is
	failed   map[int64]bool    // to be parked for a good reason
	// from the parked stream, by the number there; false: it may have been
	dropped map[int64]bool
	begun   int64            // the last message before those since the group was loaded, or moved
	checked int              // checkpoints before those since it was moved
	skipped map[int64]bool   // by number: left out when it was moved
	gone    map[int64]bool   // likewise: scavenged
	newest  map[string]int64 // last new message since then, by what keeps an order
	waits   map[event.ID]wait
	paused  bool
	mu      sync.Mutex // of faults
	faults  []bool     // of the next writes: true fails after it took effect
}

type held struct {
	subscription.Message
	deadline time.Time
	number   int64
}

// wait is when a message that was handed out may come again.
type wait struct {
	number    int64
	lane      string
	replayed  bool
	notBefore time.Time
	from, to  time.Time // it is delayed for certain
}

// TestModel prints the seed of a failure. The time of the bubble bounds the
// number of checks to some hundred; -count goes further.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// rapid asks a *testing.T for its deadline, which a bubble forbids.
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { runModel(t) })
	})
}

func runModel(t *rapid.T) {
	m := &model{bench: newBench(t), held: map[event.ID]held{}, answered: map[event.ID]bool{}, numbers: map[int64]bool{}, failed: map[int64]bool{}, dropped: map[int64]bool{}, newest: map[string]int64{}, waits: map[event.ID]wait{}, skipped: map[int64]bool{}, gone: map[int64]bool{}}
	defer func() { m.Stop() }()
	m.settings = subscription.DefaultSettings()
	m.settings.MaxRetryCount = rapid.IntRange(0, 3).Draw(t, "retries")
	m.settings.BufferSize = rapid.SampledFrom([]int{3, 7, 500}).Draw(t, "buffer")
	m.settings.ReadBatchSize = rapid.IntRange(1, m.settings.BufferSize-1).Draw(t, "batch")
	m.settings.MinCheckpointCount = rapid.IntRange(0, 5).Draw(t, "min")
	m.settings.MaxCheckpointCount = rapid.SampledFrom([]int{1, 3, 500}).Draw(t, "max")
	m.settings.StartFrom = rapid.SampledFrom([]int64{0, 0, 3}).Draw(t, "start")
	m.settings.MessageTimeout = rapid.SampledFrom([]time.Duration{0, 1500 * time.Millisecond, 10 * time.Second}).Draw(t, "timeout")
	m.settings.Strategy = rapid.SampledFrom([]subscription.Strategy{
		subscription.RoundRobin, subscription.DispatchToSingle, subscription.Pinned, subscription.PinnedByCorrelation,
	}).Draw(t, "strategy")
	m.settings.RetryDelay = rapid.SampledFrom([]time.Duration{0, 0, 700 * time.Millisecond, 20 * time.Second}).Draw(t, "delay")
	m.settings.RetryBackoff = rapid.SampledFrom([]subscription.Backoff{{}, {Factor: 3, AtMost: 30 * time.Second}}).Draw(t, "backoff")
	m.settings.CheckpointAtLeastEvery = rapid.SampledFrom([]time.Duration{0, 3 * time.Second}).Draw(t, "at least every")
	m.store.add("s", rapid.IntRange(0, 10).Draw(t, "events"))
	m.start = m.settings.StartFrom
	m.takes = func(r *event.Record) bool { return r.Stream == "s" }
	if rapid.Bool().Draw(t, "all") {
		m.onAll(t)
	}
	m.must(m.Create(m.ctx, m.key, m.settings, ""))
	m.reset()
	m.store.BeforeWrite.Set(func(context.Context, *event.Write) error { return m.fault(false) })
	m.store.AfterWrite.Set(func(context.Context, *event.Write) error { return m.fault(true) })

	t.Repeat(map[string]func(*rapid.T){
		"": m.check,
		"append": func(t *rapid.T) {
			m.store.add("other", rapid.IntRange(1, 40).Draw(t, "others"))
			m.store.add("s", rapid.IntRange(1, 8).Draw(t, "n"))
			m.maybeWait(t)
		},
		"scavenge":  func(*rapid.T) { m.scavenge() },
		"read":      func(t *rapid.T) { m.readSome(rapid.IntRange(1, 8).Draw(t, "n")); m.maybeWait(t) },
		"read more": func(t *rapid.T) { m.readSome(100) },
		"ack":       func(t *rapid.T) { m.answer(t, subscription.Skip+10, nil) },
		"nack": func(t *rapid.T) {
			m.answer(t, rapid.SampledFrom([]subscription.Action{subscription.Retry, subscription.Park, subscription.Skip}).Draw(t, "action"), nil)
		},
		"retry": func(t *rapid.T) {
			after := rapid.SampledFrom([]*time.Duration{nil, new(time.Duration(0)), new(1500 * time.Millisecond), new(40 * time.Second)}).Draw(t, "after")
			m.answer(t, subscription.Retry, after)
		},
		"pause":  func(*rapid.T) { m.setPaused(true) },
		"resume": func(*rapid.T) { m.setPaused(false) },
		"pass":   func(t *rapid.T) { m.pass(time.Duration(rapid.IntRange(1, 12_000).Draw(t, "ms")) * time.Millisecond) },
		"replay": func(t *rapid.T) {
			// What is stored to be replayed goes first, and may have to wait.
			if err := m.Replay(m.ctx, m.key, rapid.Int64Range(-1, 6).Draw(t, "stop"), 0); err != nil && !errors.Is(err, event.ErrWriteTimeout) {
				m.Fatal(err)
			}
			synctest.Wait()
		},
		"desk": m.atDesk,
		"move": m.move,
		"forward": func(t *rapid.T) {
			var numbers []int64
			if p, err := m.Parked(m.ctx, m.key, 0, 3, false, event.NoLink); err == nil && len(p.Messages) > 0 && rapid.Bool().Draw(t, "some") {
				numbers = []int64{rapid.SampledFrom(p.Messages).Draw(t, "one").Number}
			}
			if _, err := m.ForwardParked(m.ctx, m.key, "dead", numbers, 0, event.EveryLink); !mayFail(err) {
				m.Fatal(err)
			}
		},
		"faults": func(t *rapid.T) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.faults = rapid.SliceOfN(rapid.Bool(), 1, 30).Draw(t, "after")
		},
		"lead":    func(*rapid.T) { m.lead(); m.reset() },
		"kill":    func(*rapid.T) { m.Stop(); m.begin(); m.reset() },
		"restart": func(*rapid.T) { m.must(m.Restart(m.ctx)); m.reset() },
		"update": func(*rapid.T) {
			m.heal()
			m.must(m.Update(m.ctx, m.key, m.settings, ""))
			m.reset()
		},
	})
	m.heal()
	m.drain()
}

// onAll has the group subscribe to the log.
func (m *model) onAll(t *rapid.T) {
	m.key.Stream = "$all"
	m.takes = func(r *event.Record) bool { return r.Stream == "s" }
	switch rapid.IntRange(0, 3).Draw(t, "filter") {
	case 0:
		m.settings.Filter = &subscription.Filter{OfStream: true, Regex: "^s$"}
	case 1:
		m.settings.Filter = &subscription.Filter{OfStream: true, Prefixes: []string{"x", "s"}}
	case 2:
		m.settings.Filter = &subscription.Filter{Prefixes: []string{"t"}}
		m.takes = func(r *event.Record) bool { return r.Type == "t" }
	case 3:
		m.takes = func(r *event.Record) bool { return event.ShownInAll(r.Stream) }
	}
	all := m.source()
	if m.start = min(m.start, int64(len(all))); m.start < int64(len(all)) {
		m.settings.StartFrom = all[m.start].Position
	} else {
		m.settings.StartFrom = m.store.LogEnd()
	}
}

// source returns all that ever was in what the group subscribes to.
func (m *model) source() []event.Record {
	return slices.DeleteFunc(m.store.Log(), func(r event.Record) bool { return !m.takes(&r) })
}

// upTo returns the number of the source's last event whose position is at most that; -1: none.
func (m *model) upTo(position int64) int64 {
	all := m.source()
	return int64(sort.Search(len(all), func(i int) bool { return all[i].Position > position })) - 1
}

// numberOf returns which of the source's events one is.
func (m *model) numberOf(e *event.Record) int64 { return m.upTo(e.Position) }

// checkpointed returns the number up to which a checkpoint says that all is done.
func (m *model) checkpointed(n int64) int64 {
	if m.key.Stream == "$all" && n >= 0 {
		return m.upTo(n)
	}
	return n
}

// scavenge removes the event that the last checkpoint names, which does not come again.
func (m *model) scavenge() {
	i, err := m.Info(m.ctx, m.key)
	if err != nil || m.key.Stream != "$all" || i.Checkpoint < 0 {
		return
	}
	n := m.upTo(i.Checkpoint)
	if n < 0 || m.failed[n] {
		return
	}
	if r := m.source()[n]; r.Position == i.Checkpoint && r.Type == "t" && r.Stream == "s" {
		m.gone[n] = true
		m.store.scavenge(r.Stream, r.Number)
	}
}

// mayFail reports whether a request that writes may end like this.
func mayFail(err error) bool {
	return err == nil || errors.Is(err, event.ErrOutcomeUnknown) || errors.Is(err, event.ErrWriteTimeout) || errors.Is(err, event.ErrBusy) || errors.Is(err, event.ErrNotReady)
}

// move resets the group to any place.
func (m *model) move(t *rapid.T) {
	all := m.source()
	n := rapid.Int64Range(0, int64(len(all))).Draw(t, "to")
	to := subscription.Target{Kind: subscription.ToEnd}
	switch isLog := m.key.Stream == "$all"; {
	case n == 0 && rapid.Bool().Draw(t, "start"):
		to.Kind = subscription.ToStart
	case n < int64(len(all)) && (isLog || rapid.Bool().Draw(t, "position")):
		to = subscription.Target{Kind: subscription.ToPosition, At: all[n].Position}
	case n < int64(len(all)):
		to = subscription.Target{Kind: subscription.ToNumber, At: n}
	}
	before := m.moves()
	_, err := m.Reset(m.ctx, m.key, to, "ann")
	if err != nil {
		if !mayFail(err) {
			m.Fatal(err)
		}
		m.heal()
		m.pass(time.Minute) // It is tried until it is known.
	}
	if m.moves() == before {
		if err == nil {
			m.Fatal("a reset left no trace")
		}
		return
	}
	m.begun, m.start = n-1, min(m.start, n)
	m.checked = len(m.store.All(m.key.CheckpointStream()))
	for i := range all {
		if m.skipped[int64(i)] = int64(i) < n; int64(i) >= n {
			delete(m.numbers, int64(i))
		}
	}
	clear(m.newest)
	maps.DeleteFunc(m.held, func(_ event.ID, h held) bool { return h.Event.Stream != m.key.ParkedStream() })
	maps.DeleteFunc(m.waits, func(id event.ID, _ wait) bool { _, isHeld := m.held[id]; return !isHeld })
}

// moves returns how many resets were written.
func (m *model) moves() (n int) {
	for _, e := range m.store.All(m.key.CheckpointStream()) {
		if strings.Contains(string(e.Metadata), `"reset"`) {
			n++
		}
	}
	return n
}

// copies returns the copies of parked messages that were forwarded, by id.
func (m *model) copies() map[event.ID]bool {
	ids := map[event.ID]bool{}
	for _, e := range m.store.All("dead") {
		if ids[e.ID] {
			m.Fatalf("%s was forwarded twice", e.Data)
		}
		ids[e.ID] = true
	}
	return ids
}

// copyID is the id of the copy of a parked message.
func (m *model) copyID(number int64) event.ID {
	return event.ID(uuid.NewSHA1(uuid.MustParse("6f1d3f0e-9a0c-5d57-8d8b-2f0b2b3c7a51"), fmt.Appendf(nil, "%s/%d", m.key.ParkedStream(), number)))
}

func (m *model) fault(after bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.faults) == 0 || m.faults[0] != after {
		return nil
	}
	m.faults = m.faults[1:]
	return errInjected
}

func (m *model) heal() {
	m.mu.Lock()
	m.faults = nil
	m.mu.Unlock()
}

// maybeWait lets the work in the background continue, or not yet.
func (m *model) maybeWait(t *rapid.T) {
	if rapid.Bool().Draw(t, "wait") {
		synctest.Wait()
	}
}

// reset is what a new load of the group means.
func (m *model) reset() {
	for m.pass(0); ; m.pass(time.Second) {
		if i, err := m.Info(m.ctx, m.key); err == nil && i.Status != "NotReady" {
			m.begun = max(m.checkpointed(i.Checkpoint), m.start-1)
			m.is("pause", i.Paused != nil, m.paused)
			break
		}
	}
	clear(m.held)
	clear(m.newest)
	clear(m.waits)
}

// setPaused pauses or resumes the group, and insists where the outcome is not known.
func (m *model) setPaused(paused bool) {
	do := m.Resume
	if paused {
		do = m.Pause
	}
	for err := do(m.ctx, m.key, "ann"); err != nil; err = do(m.ctx, m.key, "ann") {
		if !errors.Is(err, event.ErrOutcomeUnknown) && !errors.Is(err, event.ErrWriteTimeout) && !errors.Is(err, event.ErrNotReady) {
			m.Fatal(err)
		}
		m.pass(time.Second)
	}
	m.paused = paused
}

// lane returns what the strategy keeps an order of: a stream, or all.
func (m *model) lane(stream string) string {
	if m.settings.Strategy == subscription.RoundRobin {
		return ""
	}
	return stream
}

// delay is that of the settings before the n-th retry.
func (m *model) delay(n int) time.Duration {
	d := m.settings.RetryDelay
	for ; n > 1 && m.settings.RetryBackoff.Factor > 0; n-- {
		d = min(3*d, 30*time.Second)
	}
	return d
}

// judgeNew looks whether a new message is the next of its lane.
func (m *model) judgeNew(number int64, lane string, retries int) {
	last, ok := m.newest[lane]
	if !ok {
		last = m.begun
	}
	next, all := last+1, m.source()
	for m.lane(all[next].Stream) != lane || m.gone[next] {
		next++
	}
	if number != next || retries != 0 {
		m.Fatalf("message %d of %q with %d retries after %d", number, lane, retries, last)
	}
	m.newest[lane] = number
}

// judgeWaits looks whether a message may be handed out now.
func (m *model) judgeWaits(id event.ID, number int64, lane string, replayed bool, now time.Time) {
	if w, ok := m.waits[id]; ok && now.Before(w.notBefore) {
		m.Fatalf("message %d was handed out %s early", number, w.notBefore.Sub(now))
	}
	if m.settings.Strategy == subscription.RoundRobin || replayed {
		return
	}
	for _, w := range m.waits {
		if w.lane == lane && !w.replayed && w.number < number && !now.Before(w.from) && now.Before(w.to) {
			m.Fatalf("message %d of %q was handed out while %d is delayed", number, lane, w.number)
		}
	}
}

func (m *model) readSome(n int) []subscription.Message {
	now := time.Now()
	all, copies := m.read(n), m.copies()
	for _, e := range all {
		number := m.numberOf(e.Event.Event())
		replayed := e.Event.Stream == m.key.ParkedStream()
		lane := m.lane(e.Event.Event().Stream)
		m.judgeWaits(e.ID, number, lane, replayed, now)
		last, ok := m.newest[lane]
		if !ok {
			last = m.begun
		}
		switch {
		case m.paused:
			m.Fatalf("message %d was handed out in a pause", number)
		case replayed && copies[m.copyID(e.Event.Number)]:
			m.Fatalf("message %d was handed out after it was forwarded", e.Event.Number)
		case replayed && m.dropped[e.Event.Number]:
			m.Fatalf("message %d was handed out after it was dropped", e.Event.Number)
		case replayed:
		case number > last:
			m.judgeNew(number, lane, e.Retries)
		case e.Retries == 0 && !m.failed[number]: // One that could not be parked comes as it was.
			m.Fatalf("message %d again", number)
		}
		if e.Retries >= m.settings.MaxRetryCount {
			m.failed[number] = true
		}
		deadline := now.Add(m.settings.MessageTimeout)
		m.held[e.ID] = held{e, deadline, number}
		again := deadline.Add(m.delay(e.Retries + 1))
		m.waits[e.ID] = wait{number, lane, replayed, again, deadline.Add(2 * time.Second), again}
		if e.Retries >= m.settings.MaxRetryCount {
			m.waits[e.ID] = wait{notBefore: deadline} // It is parked, or comes as it was.
		}
		m.order = append(m.order, e.ID)
	}
	return all
}

// answer answers some messages that were handed out at any time, also such that are late.
func (m *model) answer(t *rapid.T, action subscription.Action, after *time.Duration) {
	if len(m.order) == 0 {
		return
	}
	some := rapid.SliceOfNDistinct(rapid.SampledFrom(m.order), 1, 4, rapid.ID).Draw(t, "ids")
	for _, id := range some {
		h, out := m.held[id]
		if !out {
			continue
		}
		switch {
		case action == subscription.Park:
			m.failed[h.number] = true
		case action != subscription.Retry:
			m.answered[id] = true
			if h.Event.Stream != m.key.ParkedStream() {
				m.numbers[h.number] = true
			}
		}
		m.answerWait(id, h, action, after)
		delete(m.held, id)
	}
	var err error
	if action > subscription.Stop {
		err = m.Ack(m.ctx, m.key, some)
	} else {
		err = m.Nack(m.ctx, m.key, some, action, "", after)
	}
	m.must(err)
	m.maybeWait(t)
}

// answerWait is what an answer means for when a message comes again. A late one may have no effect.
func (m *model) answerWait(id event.ID, h held, action subscription.Action, after *time.Duration) {
	w, now := m.waits[id], time.Now()
	if h.Retries >= m.settings.MaxRetryCount || action != subscription.Retry {
		w.to = w.from
		if now.Before(h.deadline) {
			w.notBefore = now
		}
		m.waits[id] = w
		return
	}
	again := now.Add(m.delay(h.Retries + 1))
	if after != nil {
		again = now.Add(*after)
	}
	if now.Before(h.deadline) {
		w.notBefore, w.from, w.to = again, now, again
	} else {
		w.notBefore, w.to = earlier(w.notBefore, again), earlier(w.to, again)
	}
	m.waits[id] = w
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// atDesk replays or drops one or two of those that are parked.
func (m *model) atDesk(t *rapid.T) {
	p, err := m.Parked(m.ctx, m.key, 0, 1<<20, false, event.EveryLink)
	if err != nil || len(p.Messages) == 0 {
		return
	}
	m.is("total", p.Total, len(p.Messages))
	some := []int64{rapid.SampledFrom(p.Messages).Draw(t, "one").Number, rapid.SampledFrom(p.Messages).Draw(t, "other").Number}
	if rapid.Bool().Draw(t, "replay") {
		err = m.ReplayParked(m.ctx, m.key, some)
	} else if err = m.DropParked(m.ctx, m.key, some); !errors.Is(err, event.ErrNotReady) {
		for _, n := range some {
			m.dropped[n] = m.dropped[n] || err == nil
		}
	}
	var not *subscription.NotParked // It was forwarded, which was found out only then.
	if !mayFail(err) && !errors.As(err, &not) {
		m.Fatal(err)
	}
}

// parkedNumbers returns the numbers of all messages that ever were parked, in order.
func (m *model) parkedNumbers() (ns []int64) {
	for _, e := range m.store.All(m.key.ParkedStream()) {
		n, stream, ok := event.ParseLink(e.Data)
		if !ok {
			m.Fatalf("%q was parked", e.Data)
		}
		ns = append(ns, m.numberOf(&m.store.All(stream)[n]))
	}
	return ns
}

func (m *model) check(*rapid.T) {
	synctest.Wait()
	parked := map[int64]bool{}
	for _, n := range m.parkedNumbers() {
		parked[n] = true
		if !m.failed[n] {
			m.Fatalf("message %d was parked for no reason", n)
		}
	}
	for k, text := range m.store.Data(m.key.CheckpointStream()) {
		if k < m.checked {
			continue
		}
		text = strings.Trim(text, `"`)
		if _, prepare, isLog := strings.Cut(text, "/P:"); m.key.Stream == "$all" {
			m.is("checkpoint of the log", isLog, true)
			text = prepare
		}
		last, err := strconv.ParseInt(text, 10, 64)
		m.must(err)
		last = m.checkpointed(last)
		for n := m.start; n <= last; n++ {
			if !m.numbers[n] && !parked[n] && !m.skipped[n] && !m.gone[n] {
				m.Fatalf("checkpoint %d, but message %d has no answer", last, n)
			}
		}
	}
}

// drain answers everything, and looks whether everything was there.
func (m *model) drain() {
	m.setPaused(false)
	m.pass(time.Minute) // All that is tried again has been.
	m.replay(-1)
	for quiet := 0; quiet < 3; {
		all := m.readSome(100)
		for _, e := range all {
			m.answered[e.ID] = true
			if e.Event.Stream != m.key.ParkedStream() {
				m.numbers[m.numberOf(&e.Event.Record)] = true
			}
			delete(m.held, e.ID)
		}
		m.ack(all...)
		if len(all) == 0 {
			m.pass(12 * time.Second)
			quiet++
		} else {
			quiet = 0
		}
	}
	i := m.info()
	m.is("state", fmt.Sprint(i.Status, i.Outstanding, i.RetryBuffer, i.ReadBuffer), fmt.Sprint("Live", 0, 0, 0))
	m.check(nil)
	if last := int64(len(m.source())) - 1; m.settings.CheckpointAtLeastEvery > 0 && last > m.begun {
		m.is("last checkpoint", m.checkpointed(i.Checkpoint), last)
	}
	parked := m.parkedNumbers()
	for n := m.start; n < int64(len(m.source())); n++ {
		if !m.numbers[n] && !slices.Contains(parked, n) && !m.skipped[n] && !m.gone[n] {
			m.Fatalf("message %d was lost", n)
		}
	}
	hidden, copies := len(parked)-len(m.parked()), m.copies()
	m.is("parked count", i.Parked, len(m.parked()))
	for k, e := range m.store.All(m.key.ParkedStream())[:hidden] {
		if _, ok := m.dropped[int64(k)]; ok || copies[m.copyID(int64(k))] {
			continue
		}
		if !m.answered[e.ID] && !slices.Contains(parked[k+1:], parked[k]) {
			m.Fatalf("parked message %d of number %d was lost: %v", k, parked[k], slices.Collect(maps.Keys(m.answered)))
		}
	}
}
