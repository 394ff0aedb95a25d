package subscription_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

// TestSources: what a group reads is changed, and it keeps its place.
func TestSources(t *testing.T) {
	type settings = *subscription.Settings
	move := func(b *bench, source string) {
		b.Helper()
		b.update(func(s settings) { s.Source, s.MaxCheckpointCount = source, 1 })
	}
	// events appends to s and o in turn: 0@s 0@o 1@s 1@o ...
	events := func(b *bench, n int) {
		for range n {
			b.store.add("s", 1)
			b.store.add("o", 1)
		}
	}
	only := &subscription.Filter{OfStream: true, Regex: "^[so]$"}
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"another stream and back, over changes of leader", func(b *bench) {
			events(b, 4)
			b.create(nil)
			b.ack(b.takeNames(2, "0@s", "1@s")...)
			move(b, "o")
			b.ack(b.takeNames(2, "1@o", "2@o")...)
			b.is("checkpoint", b.checkpoint(), `"2"`)
			b.lead()
			b.takeNames(9, "3@o")
			b.update(nil)
			b.is("kept", b.info().Settings.Source, "o")
			b.takeNames(9, "3@o")
			move(b, "s")
			b.is("source", b.info().Settings.Source, "")
			b.lead()
			b.ack(b.takeNames(9, "3@s")...)
			b.is("checkpoint", b.checkpoint(), `"3"`)
		}},
		{"the log and back", func(b *bench) {
			events(b, 3)
			b.create(nil)
			got := b.takeNames(2, "0@s", "1@s")
			b.ack(got[0])
			b.update(func(s settings) { s.Source, s.Filter, s.MaxCheckpointCount = "$all", only, 1 })
			b.ack(b.takeNames(3, "0@o", "1@s", "1@o")...)
			b.is("checkpoint", b.checkpoint(), positionText(b.position("o", 1)))
			i := b.info()
			b.is("named", i.Position(i.Checkpoint), strings.Trim(positionText(b.position("o", 1)), `"`))
			b.lead()
			b.takeNames(9, "2@s", "2@o")
			b.reset(subscription.ToPosition, b.position("o", 1), subscription.Reset{From: b.position("s", 2), To: b.position("o", 1), Again: 3})
			b.ack(b.takeNames(2, "1@o", "2@s")...)
			move(b, "o")
			b.is("filter", b.info().Settings.Filter, "<nil>")
			b.takeNames(9, "2@o")
		}},
		{"an index of the log", func(b *bench) {
			events(b, 2)
			b.create(nil)
			b.ack(b.takeNames(1, "0@s")...)
			move(b, "$idx-et-t")
			b.ack(b.takeNames(2, "0@o", "1@s")...)
			move(b, "$all")
			b.takeNames(1, "1@o")
		}},
		{"before anything was answered it begins as the settings say", func(b *bench) {
			events(b, 3)
			b.create(nil)
			b.takeNames(1, "0@s")
			b.update(func(s settings) { s.Source, s.StartFrom = "o", 1 })
			b.takeNames(9, "1@o", "2@o")
		}},
		{"a group of the end of a stream that was empty", func(b *bench) {
			b.store.add("o", 2)
			b.create(func(s settings) { s.StartFrom = -1 })
			b.store.add("o", 1)
			move(b, "o")
			b.takeNames(9)
			b.store.add("o", 1)
			b.takeNames(9, "3@o")
		}},
		{"events that are gone leave the place as it was", func(b *bench) {
			events(b, 4)
			b.create(nil)
			b.ack(b.takeNames(2, "0@s", "1@s")...)
			b.store.scavenge("s", 0, 1)
			b.store.Append("$$s", "$metadata", `{"$tb":2}`, "")
			move(b, "o")
			b.takeNames(9, "1@o", "2@o", "3@o")
		}},
		{"a stream that was deleted, over a change of leader", func(b *bench) {
			b.store.add("s", 2)
			b.create(func(s settings) { s.MaxCheckpointCount = 1 })
			b.ack(b.takeNames(2, "0@s", "1@s")...)
			b.store.add("o", 2)
			b.lead()
			b.store.Delete(event.SoftDelete, "s")
			move(b, "o")
			b.takeNames(9, "0@o", "1@o")
		}},
		{"a start that was one of the old source, as of clients that send all settings", func(b *bench) {
			events(b, 4)
			b.create(func(s settings) { s.StartFrom = 2 })
			b.ack(b.takeNames(1, "2@s")...)
			b.update(func(s settings) { s.StartFrom, s.Source, s.Filter = 2, "$all", only })
			b.is("start", b.info().Settings.StartFrom, 0)
			b.takeNames(9, "2@o", "3@s", "3@o")
		}},
		{"a source whose next event is gone", func(b *bench) {
			b.store.add("s", 1)
			b.create(nil)
			b.ack(b.takeNames(1, "0@s")...)
			events(b, 1)
			move(b, "o")
			b.store.add("o", 1)
			b.store.Append("$$o", "$metadata", `{"$tb":1}`, "")
			b.lead()
			b.takeNames(1, "1@o")
			move(b, "s")
			b.takeNames(9, "1@s")
		}},
		{"a place that nothing tells any more", func(b *bench) {
			b.store.add("s", 2)
			b.create(nil)
			// Of another version.
			b.store.Append(b.key.CheckpointStream(), "$SubscriptionCheckpoint", `"1"`, "")
			b.lead()
			b.store.Delete(event.SoftDelete, "s")
			s := subscription.DefaultSettings()
			s.Source = "o"
			_, isRefused := errors.AsType[*subscription.SettingsError](b.Update(b.ctx, b.key, s, ""))
			b.is("refused", isRefused, true)
			b.is("source", b.info().Settings.Source, "")
		}},
		{"the first group there is", func(b *bench) {
			events(b, 3)
			b.create(func(s settings) { s.Source, s.MaxCheckpointCount = "o", 1 })
			b.ack(b.takeNames(2, "0@o", "1@o")...)
			b.is("checkpoint", b.checkpoint(), `"1"`)
			b.update(func(s settings) { s.Source = "s" })
			b.lead()
			b.takeNames(9, "2@s")
		}},
		{"a filter", func(b *bench) {
			b.key.Stream = "$all"
			events(b, 2)
			b.create(func(s settings) { s.Filter = &subscription.Filter{OfStream: true, Prefixes: []string{"s"}} })
			b.ack(b.takeNames(1, "0@s")...)
			b.update(func(s settings) { s.Filter = only })
			b.is("filter", b.info().Settings.Filter.Regex, only.Regex)
			b.takeNames(9, "0@s", "0@o", "1@s", "1@o") // One answer is not checkpointed.
			b.ack(b.read(0)...)
			b.update(func(s settings) { s.Filter = &subscription.Filter{} })
			b.is("filter", b.info().Settings.Filter, "<nil>")
		}},
		{"from the beginning of the group", func(b *bench) {
			events(b, 2)
			b.create(func(s settings) { s.Source, s.StartFrom = "o", 1 })
			b.takeNames(9, "1@o")
			b.lead()
			b.takeNames(9, "1@o")
		}},
		{"versions that know no sources leave it alone", func(b *bench) {
			b.create(nil)
			move(b, "o")
			b.is("strategy", b.config()["entries"].([]any)[0].(map[string]any)["namedConsumerStrategy"], "RoundRobin@source")
		}},
		{"what cannot be", func(b *bench) {
			b.create(nil)
			for _, set := range []subscription.Settings{{Source: "o", Filter: only}, {Filter: only}, {Source: "$idx-x"}} {
				s := subscription.DefaultSettings()
				s.Source, s.Filter = set.Source, set.Filter
				_, isRefused := errors.AsType[*subscription.SettingsError](b.Update(b.ctx, b.key, s, ""))
				b.is("refused", isRefused, true)
			}
			b.is("source", b.info().Settings.Source, "")
		}},
	} {
		t.Run(c.name, func(t *testing.T) { run(t, c.test) })
	}
}

// TestSourceModel changes the source and the filter of a group at random, with appends, answers and
// changes of leader in between. Each time what comes next must be all of the new source that lies
// after the events that were answered, and nothing else.
func TestSourceModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// rapid asks a *testing.T for its deadline, which a bubble forbids.
		rapid.Check(struct{ testing.TB }{t}, runSourceModel)
	})
}

func runSourceModel(t *rapid.T) {
	type settings = *subscription.Settings
	b := newBench(t)
	defer func() { b.Stop() }()
	of := func(streams string) func(r *event.Record) bool {
		return func(r *event.Record) bool { return len(r.Stream) == 1 && strings.Contains(streams, r.Stream) }
	}
	sources := []struct {
		set   func(s settings)
		takes func(r *event.Record) bool
		isLog bool
	}{
		{func(s settings) { s.Source = "s" }, of("s"), false},
		{func(s settings) { s.Source = "o" }, of("o"), false},
		{func(s settings) { s.Source = "none" }, of(""), false},
		{func(s settings) { s.Source, s.Filter = "$all", &subscription.Filter{OfStream: true, Regex: "^[so]$"} }, of("so"), true},
		{func(s settings) {
			s.Source, s.Filter = "$all", &subscription.Filter{OfStream: true, Prefixes: []string{"o", "x"}}
		}, of("o"), true},
		{func(s settings) { s.Source = "$idx-et-t" }, of("so"), true},
	}
	appendSome := func() {
		for _, stream := range rapid.SliceOfN(rapid.SampledFrom([]string{"s", "o"}), 1, 6).Draw(t, "events") {
			b.store.add(stream, 1)
		}
	}
	appendSome()
	b.create(func(s settings) { s.MaxCheckpointCount = 1 })
	at, done := 0, int64(-1) // all up to this position is answered
	passed := done           // the group may have got so far, without an event of its source
	for range rapid.IntRange(1, 8).Draw(t, "steps") {
		if rapid.Bool().Draw(t, "more") {
			appendSome()
		}
		var want []int64
		for _, r := range b.store.Log() {
			if r.Position > done && sources[at].takes(&r) {
				want = append(want, r.Position)
			}
		}
		var got []int64
		all := b.read(100)
		for i := range all {
			got = append(got, all[i].Event.Position)
		}
		for len(want) > len(got) && want[0] <= passed {
			want = want[1:]
		}
		b.is("positions", got, want)
		n := rapid.IntRange(0, len(all)).Draw(t, "answered")
		if n > 0 {
			b.ack(all[:n]...)
			done, passed = got[n-1], got[n-1]
		}
		switch {
		case sources[at].isLog && n == len(all):
			passed = b.store.LogEnd()
		case sources[at].isLog:
			passed = got[n] - 1
		}
		b.pass(pace)
		if rapid.Bool().Draw(t, "lead") {
			b.lead()
		} else {
			b.must(b.Restart(b.ctx))
		}
		if done >= 0 { // Before the first answer it begins again.
			at = rapid.IntRange(0, len(sources)-1).Draw(t, "source")
			b.update(func(s settings) { s.MaxCheckpointCount = 1; sources[at].set(s) })
		}
	}
}
