package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

// settled is how long after a disturbance nodes know of each other again.
const settled = 90 * time.Second

// world is a cluster in memory: one stream, nodes that die, come back
// and are cut off, and one of them that leads. It runs in a bubble of synctest.
type world struct {
	t    *testing.T
	rand *rand.Rand // guarded by mu

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced whenever something changes
	events     []event.Record
	metadata   event.Metadata
	metaLast   int64
	deleted    bool // for good
	nodes      []*node
	leader     *node // nil: none
	ledSince   time.Time
	leaderLost time.Time
	handsOver  float64 // probability that resigning works
	flaky      float64 // probability that the outcome of a write is not known
	log        []string
	stats      *stats.Registry
	closed     bool
}

// node is one of its members, and implements Store, Cluster and Runner for it.
type node struct {
	w          *world
	id         event.ID
	name       string
	readOnly   bool
	expression string
	skew       time.Duration
	request    scavenge.Request

	up, cut bool
	since   time.Time // up, cut or the option changed last
	changes []change
	hung    bool // its scheduler does not run although it is alive

	cancel    context.CancelFunc
	ended     chan struct{}
	scheduler *Scheduler

	run       *run
	last      scavenge.Status
	remaining time.Duration // of the run that was interrupted
	duration  func() time.Duration
	startErr  error
}

// change is when a node came or went.
type change struct {
	at        time.Time
	connected bool
}

type run struct {
	status    scavenge.Status
	scheduled bool
	halt      chan scavenge.Result
	done      chan struct{}
}

func newWorld(t *testing.T, seed uint64, size, replicas int) *world {
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), changed: make(chan struct{}), metaLast: -1, handsOver: 1,
	}
	for i := range size + replicas {
		n := &node{
			w: w, id: event.ID{15: byte(i + 1)}, name: fmt.Sprintf("node%d:2113", i+1), readOnly: i >= size,
			skew: time.Duration(w.rand.IntN(4000)-2000) * time.Millisecond,
		}
		n.duration = func() time.Duration { return time.Duration(1+w.rand.IntN(40)) * time.Minute }
		w.nodes = append(w.nodes, n)
	}
	return w
}

func (w *world) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) notef(format string, args ...any) {
	w.log = append(w.log, time.Now().UTC().Format("02 15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *world) errorf(format string, args ...any) {
	w.t.Errorf(time.Now().UTC().Format("02 15:04:05.000 ")+format, args...)
}

func (n *node) touch() {
	n.since = time.Now()
	n.changes = append(n.changes, change{n.since, n.connected()})
	n.w.wake()
}

// start sets a node going.
func (n *node) start() {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.up || n.w.closed {
		return
	}
	n.up = true
	n.touch()
	n.w.notef("%s starts with %q", n.name, n.expression)
	n.schedule()
}

// schedule starts the node's scheduler; w.mu is held.
func (n *node) schedule() {
	s := check.Value(New(Options{
		Expression: n.expression, Endpoint: n.name, Runner: (*fakeRunner)(n), Store: (*fakeStore)(n), Cluster: (*fakeCluster)(n),
		Now: func() time.Time { return time.Now().Add(n.skew) }, Request: n.request, Logger: hclog.NewNullLogger(), Stats: n.w.stats,
	})).Must(n.w.t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	n.scheduler, n.cancel, n.ended = s, cancel, ended
	go func() {
		defer close(ended)
		defer s.Close()
		for ctx.Err() == nil {
			n.w.mu.Lock()
			leads, changed := n.w.leader == n && n.connected() && !n.hung, n.w.changed
			n.w.mu.Unlock()
			if leads {
				s.Start(ctx)
			} else {
				s.Stop()
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
}

// stop ends a node, and with it what it was doing.
func (n *node) stop() {
	n.w.mu.Lock()
	if !n.up {
		n.w.mu.Unlock()
		return
	}
	n.w.notef("%s stops", n.name)
	n.up = false
	n.touch()
	n.w.leaves(n)
	cancel, ended := n.cancel, n.ended
	n.w.mu.Unlock()
	cancel()
	<-ended
	n.w.mu.Lock()
	r := n.run
	n.w.mu.Unlock()
	if r != nil {
		select {
		case r.halt <- scavenge.ResultUnknown:
		case <-r.done:
		}
		<-r.done
	}
	n.w.mu.Lock()
	n.last = scavenge.Status{Result: scavenge.ResultUnknown}
	n.w.mu.Unlock()
}

func (n *node) cutOff(cut bool) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.cut == cut {
		return
	}
	n.w.notef("%s cut off: %t", n.name, cut)
	n.cut = cut
	n.touch()
	if cut {
		n.w.leaves(n)
	}
}

// The rest of the world's ways needs w.mu.

func (n *node) connected() bool { return n.up && !n.cut }

// steady reports whether a node has been connected for a while.
func (n *node) steady() bool { return n.connected() && time.Since(n.since) > settled }

func (w *world) quorum() bool {
	voters, connected := 0, 0
	for _, n := range w.nodes {
		if !n.readOnly {
			voters++
			if n.connected() {
				connected++
			}
		}
	}
	return connected > voters/2
}

func (w *world) leaves(n *node) {
	if w.leader == n || !w.quorum() {
		w.leader, w.leaderLost = nil, time.Now()
		w.wake()
	}
}

// elect finds a leader some time after the last was lost.
func (w *world) elect() {
	if w.leader != nil && (!w.leader.connected() || !w.quorum()) {
		w.leaves(w.leader)
	}
	if w.leader == nil && w.quorum() && time.Since(w.leaderLost) > 5*time.Second {
		w.lead(w.candidate(nil))
	}
}

func (w *world) candidate(not *node) *node {
	var list []*node
	for _, n := range w.nodes {
		if n.connected() && !n.readOnly && !n.hung && n != not {
			list = append(list, n)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[w.rand.IntN(len(list))]
}

func (w *world) lead(n *node) {
	if n == nil || n == w.leader {
		return
	}
	w.notef("%s leads", n.name)
	w.leader, w.ledSince = n, time.Now()
	w.wake()
}

type fakeStore node

func (f *fakeStore) StreamInfo(context.Context, string) (event.StreamInfo, error) {
	n := (*node)(f)
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return event.StreamInfo{
		Last: int64(len(n.w.events)) - 1, HardDeleted: n.w.deleted, Metadata: n.w.metadata, MetaLast: n.w.metaLast,
	}, nil
}

func (f *fakeStore) ReadStream(_ context.Context, r event.StreamRead) (event.StreamPage, error) {
	n := (*node)(f)
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	last := int64(len(n.w.events)) - 1
	page := event.StreamPage{Stream: r.Stream, From: r.From, Last: last, Min: n.w.metadata.MinVisible(last)}
	if last < 0 || n.w.metadata.SoftDeleted() {
		return page, event.ErrStreamNotFound
	}
	// It is read backward, from its end.
	for i := last; i >= page.Min && len(page.Events) < r.Count; i-- {
		page.Events = append(page.Events, event.Resolved{Record: n.w.events[i]})
	}
	return page, nil
}

func (f *fakeStore) WaitStream(ctx context.Context, _ string, after int64) error {
	n := (*node)(f)
	for {
		n.w.mu.Lock()
		changed, all := n.w.changed, len(n.w.events)
		n.w.mu.Unlock()
		if int64(all) > after+1 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (f *fakeStore) WriteOwn(ctx context.Context, write *event.Write) (event.Written, error) {
	n := (*node)(f)
	for {
		n.w.mu.Lock()
		if n.connected() && n.w.leader != nil && n.w.leader.connected() && n.w.quorum() {
			break
		}
		changed := n.w.changed
		n.w.mu.Unlock()
		select {
		case <-ctx.Done():
			return event.Written{}, event.ErrNotReady
		case <-changed:
		}
	}
	defer n.w.mu.Unlock()
	chance := n.w.rand.Float64()
	if chance < n.w.flaky/2 {
		return event.Written{}, event.ErrOutcomeUnknown // It was not written.
	}
	if event.IsMetaStream(write.Stream) {
		if write.ExpectedVersion != n.w.metaLast {
			return event.Written{}, &event.WrongExpectedVersion{Expected: write.ExpectedVersion, Current: n.w.metaLast}
		}
		n.w.metaLast++
		n.w.metadata = event.ParseMetadata(write.Events[0].Data)
		return event.Written{First: n.w.metaLast, Last: n.w.metaLast}, nil
	}
	if last := int64(len(n.w.events)) - 1; write.ExpectedVersion != last {
		return event.Written{}, &event.WrongExpectedVersion{Expected: write.ExpectedVersion, Current: last}
	}
	for _, e := range write.Events {
		n.w.append(n, e)
	}
	if chance < n.w.flaky {
		return event.Written{}, event.ErrOutcomeUnknown
	}
	last := int64(len(n.w.events)) - 1
	return event.Written{First: last, Last: last}, nil
}

// append adds an event to the stream, which no soft deletion then hides.
func (w *world) append(by *node, e event.Proposed) {
	if w.metadata.SoftDeleted() {
		w.metadata.TruncateBefore = int64(len(w.events))
	}
	r := event.Record{Stream: Stream, Number: int64(len(w.events)), ID: e.ID, Type: e.Type, Time: time.Now().UnixNano(), Data: e.Data}
	w.notef("%s writes %d %s %s", by.name, r.Number, e.Type, e.Data)
	w.checkTaken(by, &e)
	w.events = append(w.events, r)
	w.wake()
}

type fakeCluster node

func (f *fakeCluster) Node() event.ID { return f.id }

// Ask reaches nodes that are there, on both sides.
func (f *fakeCluster) Ask(ctx context.Context, id event.ID, q Ask) (Answer, error) {
	n := (*node)(f)
	n.w.mu.Lock()
	var to *Scheduler
	for _, o := range n.w.nodes {
		if o.id == id && o.connected() && n.connected() && !o.hung {
			to = o.scheduler
		}
	}
	n.w.mu.Unlock()
	if to == nil {
		return Answer{}, event.ErrNotReady
	}
	return to.Answer(ctx, q), nil
}

// View knows members with some seconds' delay.
func (f *fakeCluster) View() (view event.ClusterView) {
	n := (*node)(f)
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	const delay = 10 * time.Second
	alone := n.cut && time.Since(n.since) > delay
	for _, o := range n.w.nodes {
		alive := o.connected()
		if time.Since(o.since) <= delay {
			alive = !alive
		}
		if alone {
			alive = false
		}
		state := event.StateFollower
		if !n.cut && n.w.leader == o {
			state = event.StateLeader
		}
		view.Members = append(view.Members, event.Member{Node: o.id, Alive: alive || o == n, State: state, ReadOnly: o.readOnly, Voter: !o.readOnly})
	}
	return view
}

func (f *fakeCluster) Resign(context.Context) error {
	n := (*node)(f)
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.w.leader == n && n.w.rand.Float64() < n.w.handsOver {
		n.w.lead(n.w.candidate(n))
	}
	return nil
}

type fakeRunner node

func (f *fakeRunner) Start(scavenge.Request) (event.ID, error) {
	n := (*node)(f)
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.begin(true)
}

// begin starts a run, of the schedule or of an operator; w.mu is held.
func (n *node) begin(scheduled bool) (event.ID, error) {
	if n.startErr != nil {
		return event.ID{}, n.startErr
	}
	if n.run != nil {
		return event.ID{}, scavenge.ErrRunning
	}
	takes := n.remaining
	if takes == 0 {
		takes = n.duration()
	}
	r := &run{
		scheduled: scheduled, halt: make(chan scavenge.Result), done: make(chan struct{}),
		status: scavenge.Status{ID: event.ID(uuid.New()), Result: scavenge.ResultInProgress, Started: time.Now().Add(n.skew)},
	}
	n.run = r
	n.w.notef("%s is scavenged, scheduled %t, for %v", n.name, scheduled, takes)
	if scheduled {
		n.w.checkAlone(n)
	}
	go func() {
		defer close(r.done)
		began := time.Now()
		timer := time.NewTimer(takes)
		defer timer.Stop()
		result := scavenge.ResultSuccess
		select {
		case <-timer.C:
		case result = <-r.halt:
		}
		n.w.mu.Lock()
		defer n.w.mu.Unlock()
		n.remaining = max(0, takes-time.Since(began))
		r.status.Result, r.status.Ended = result, time.Now()
		n.run, n.last = nil, r.status
		n.w.notef("%s was scavenged: %s", n.name, result)
	}()
	return r.status.ID, nil
}

func (f *fakeRunner) Stop(_ context.Context, id event.ID) (event.ID, error) {
	f.w.mu.Lock()
	r := f.run
	f.w.mu.Unlock()
	if r == nil || r.status.ID != id {
		return event.ID{}, scavenge.ErrNoSuchRun
	}
	select {
	case r.halt <- scavenge.ResultStopped:
	case <-r.done:
	}
	<-r.done
	return id, nil
}

func (f *fakeRunner) Last() scavenge.Status {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return f.last
}

func (f *fakeRunner) Current() scavenge.Status {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if f.run == nil {
		return scavenge.Status{}
	}
	return f.run.status
}

func (f *fakeRunner) Wait(ctx context.Context, id event.ID) (scavenge.Status, error) {
	f.w.mu.Lock()
	r, last := f.run, f.last
	f.w.mu.Unlock()
	if r == nil || r.status.ID != id {
		if last.ID != id {
			return scavenge.Status{}, errors.New("no such run")
		}
		return last, nil
	}
	select {
	case <-ctx.Done():
		return scavenge.Status{}, ctx.Err()
	case <-r.done:
		return r.status, nil
	}
}

// checkAlone fails the test when another steady node is scavenged by the schedule too.
func (w *world) checkAlone(n *node) {
	for _, o := range w.nodes {
		if o != n && o.run != nil && o.run.scheduled && o.steady() && n.steady() {
			w.errorf("%s and %s are scavenged at the same time", n.name, o.name)
		}
	}
}

// checkTaken looks at who gets a turn: a steady leader is the last of all.
func (w *world) checkTaken(n *node, e *event.Proposed) {
	var now record
	if json.Unmarshal(e.Data, &now) != nil || now.Round == nil || now.Round.Turn == nil || now.Round.Turn.Node != n.id {
		return
	}
	r := w.record().Round
	if w.leader != n || time.Since(w.ledSince) < settled || w.flaky > 0 || r == nil || r.Turn != nil || r.Attempts[n.id] > 0 {
		return
	}
	for _, o := range w.nodes {
		if o.expression == "" || o == n || o.hung || !o.steady() {
			continue
		}
		if !r.done(o.id) {
			w.errorf("the leader %s takes its turn before %s", n.name, o.name)
		}
		if w.handsOver == 1 && !o.readOnly {
			w.errorf("%s takes its turn while it leads, and %s could lead", n.name, o.name)
		}
	}
}

// record is the last one.
func (w *world) record() (r record) {
	for i := len(w.events) - 1; i >= 0; i-- {
		if w.events[i].Type == TypeRecord && json.Unmarshal(w.events[i].Data, &r) == nil {
			break
		}
	}
	return r
}

// rounds are all rounds that the stream tells of.
func (w *world) rounds() (list []*round) {
	for i := range w.events {
		var now record
		if w.events[i].Type == TypeRecord {
			_ = json.Unmarshal(w.events[i].Data, &now)
		}
		for _, r := range []*round{now.Last, now.Round} {
			if n := len(list); r != nil && n > 0 && list[n-1].Due.Equal(r.Due) {
				list[n-1] = r
			} else if r != nil && (n == 0 || r == now.Round || n < 2 || !list[n-2].Due.Equal(r.Due)) {
				list = append(list, r)
			}
		}
	}
	return list
}

// pass lets time go by, with elections, and looks at what must hold all the time.
func (w *world) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		<-time.After(min(5*time.Second, time.Until(end)))
		w.mu.Lock()
		w.elect()
		var busy []string
		for _, n := range w.nodes {
			if n.run != nil && n.run.scheduled && n.steady() {
				busy = append(busy, n.name)
			}
		}
		if len(busy) > 1 {
			w.errorf("scavenged at the same time: %v", busy)
		}
		w.mu.Unlock()
	}
}

func (w *world) startAll() {
	for _, n := range w.nodes {
		n.start()
	}
}

// close stops all nodes and tells what happened if the test failed.
func (w *world) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	for _, n := range w.nodes {
		n.stop()
	}
	if w.t.Failed() {
		for _, line := range w.log {
			w.t.Log(line)
		}
	}
}

func (w *world) write(n *node, kind string, data any) {
	raw := check.Value(json.Marshal(data)).Must(w.t)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.append(n, event.Proposed{ID: event.ID(uuid.New()), Type: kind, Data: raw})
}
