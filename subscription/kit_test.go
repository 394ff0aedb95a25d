package subscription_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/memdb"
	"github.com/annalsdb/annals/subscription"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// complainer is what *testing.T and *rapid.T have in common.
type complainer interface {
	Helper()
	Error(args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
}

type store struct{ *memdb.DB }

func newStore(t complainer) store { return store{memdb.Open(t, memdb.Options{})} }

// add appends n events, whose data are their numbers.
func (s store) add(stream string, n int) {
	first, w := s.Info(stream).Last+1, event.Write{Stream: stream, ExpectedVersion: event.AnyVersion}
	for i := range n {
		w.Events = append(w.Events, event.Proposed{ID: event.ID(uuid.New()), Type: "t", Data: strconv.AppendInt(nil, first+int64(i), 10)})
	}
	s.Put(w)
}

// scavenge removes events for good.
func (s store) scavenge(stream string, numbers ...int64) {
	s.Scavenge(func(r *event.Record) bool { return r.Stream == stream && slices.Contains(numbers, r.Number) })
}

var errInjected = fmt.Errorf("injected: %w", event.ErrOutcomeUnknown)

// bench is a service over a store in memory, in a bubble of time.
type bench struct {
	complainer
	*subscription.Service
	store store
	ctx   context.Context
	key   subscription.Key
	// member is of the options.
	member func() string
}

// run runs a test in a bubble with a service that was started.
func run(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer func() { b.Stop() }()
		test(b)
	})
}

func newBench(t complainer) *bench {
	b := &bench{complainer: t, store: newStore(t), ctx: context.Background(), key: subscription.Key{Stream: "s", Group: "g"}}
	b.begin()
	return b
}

// pace is the least time between two checkpoints.
const pace = 50 * time.Millisecond

// begin starts a new service on the store, as a node that begins to lead.
func (b *bench) begin() {
	b.Service = subscription.New(subscription.Options{Store: b.store, CorrelationMember: b.member})
	b.Start(b.ctx)
	synctest.Wait()
}

// lead ends the service and lets another node lead, when the checkpoint that is due is written.
func (b *bench) lead() {
	b.pass(pace)
	b.Stop()
	b.begin()
}

// create makes the group with settings changed by edit.
func (b *bench) create(edit func(s *subscription.Settings)) {
	b.Helper()
	s := subscription.DefaultSettings()
	if edit != nil {
		edit(&s)
	}
	b.must(b.Create(b.ctx, b.key, s, "admin"))
	synctest.Wait()
}

func (b *bench) update(edit func(s *subscription.Settings)) {
	b.Helper()
	s := subscription.DefaultSettings()
	if edit != nil {
		edit(&s)
	}
	b.must(b.Update(b.ctx, b.key, s, "admin"))
	synctest.Wait()
}

func (b *bench) must(err error) {
	b.Helper()
	check.Must(b, err)
}

func (b *bench) is(what string, got, want any) {
	b.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		b.Fatalf("%s: %s, want %s", what, g, w)
	}
}

func (b *bench) read(count int) []subscription.Message {
	b.Helper()
	got, err := b.Read(b.ctx, b.key, count, event.EveryLink)
	b.must(err)
	return got
}

// take reads count messages and compares their numbers in the source stream.
func (b *bench) take(count int, want ...int64) []subscription.Message {
	b.Helper()
	got := b.read(count)
	b.is("numbers", numbers(got), want)
	return got
}

func numbers(all []subscription.Message) (ns []int64) {
	for i := range all {
		ns = append(ns, all[i].Event.Event().Number)
	}
	return ns
}

func ids(all ...subscription.Message) (ids []event.ID) {
	for i := range all {
		ids = append(ids, all[i].ID)
	}
	return ids
}

func (b *bench) ack(all ...subscription.Message) {
	b.Helper()
	b.must(b.Ack(b.ctx, b.key, ids(all...)))
	synctest.Wait()
}

func (b *bench) nack(action subscription.Action, all ...subscription.Message) {
	b.Helper()
	b.must(b.Nack(b.ctx, b.key, ids(all...), action, "Nacked from HTTP", nil))
	synctest.Wait()
}

func (b *bench) info() subscription.Info {
	b.Helper()
	i, err := b.Info(b.ctx, b.key)
	b.must(err)
	return i
}

// checkpoint returns the data of the last checkpoint, when one that is due is written.
func (b *bench) checkpoint() string {
	b.pass(pace)
	all := b.store.Data(b.key.CheckpointStream())
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

func (b *bench) parked() []string { return b.store.Data(b.key.ParkedStream()) }

func (b *bench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) replay(stopAt int64) {
	b.Helper()
	b.must(b.Replay(b.ctx, b.key, stopAt, 0))
	synctest.Wait()
}

func upTo(from, to int64) (ns []int64) {
	for n := from; n <= to; n++ {
		ns = append(ns, n)
	}
	return slices.Clip(ns)
}

func always(err error) func(context.Context, *event.Write) error {
	return func(context.Context, *event.Write) error { return err }
}

// once says of the first write that is meant that its outcome is unknown.
func once(isMeant func(w *event.Write) bool) func(context.Context, *event.Write) error {
	done := false
	return func(_ context.Context, w *event.Write) error {
		if done || !isMeant(w) {
			return nil
		}
		done = true
		return errInjected
	}
}
