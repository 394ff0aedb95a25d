package subscription_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlclark/regexp2/v2"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/match"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/subscription"
)

// names returns what messages are links to.
func names(all []subscription.Message) (texts []string) {
	for i := range all {
		e := all[i].Event.Event()
		texts = append(texts, fmt.Sprintf("%d@%s", e.Number, e.Stream))
	}
	return texts
}

// takeNames reads count messages and compares what they are.
func (b *bench) takeNames(count int, want ...string) []subscription.Message {
	b.Helper()
	got := b.read(count)
	b.is("messages", names(got), want)
	return got
}

// position returns where an event is in the log.
func (b *bench) position(stream string, number int64) int64 {
	return b.store.All(stream)[number].Position
}

func positionText(n int64) string { return fmt.Sprintf(`"C:%d/P:%d"`, n, n) }

func TestGroupsOfTheLog(t *testing.T) {
	type settings = *subscription.Settings
	ofStream := func(prefixes ...string) *subscription.Filter {
		return &subscription.Filter{OfStream: true, Prefixes: prefixes}
	}
	often := func(s settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 }
	onlyA := func(s settings) { often(s); s.Filter = ofStream("a") }
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"all that is shown, in the order of the log", func(b *bench) {
			b.store.add("a", 1)
			b.store.add("$epoch-information", 1)
			b.store.add("b", 1)
			b.store.add("a", 1)
			b.create(often)
			got := b.takeNames(4, "0@a", "0@b", "1@a", "0@$$"+configStream)
			b.ack(got...)
			b.is("checkpoint", b.checkpoint(), positionText(got[3].Event.Position))
			e := b.store.All("$persistentsubscription-$all::g-checkpoint")[0]
			b.is("type", []any{e.Type, e.IsJSON()}, []any{"SubscriptionCheckpoint", true})
			b.ack(b.takeNames(9, "0@"+configStream, "0@$$$persistentsubscription-$all::g-checkpoint")...)
			b.pass(time.Minute)
			b.takeNames(9)
		}},
		{"by streams", func(b *bench) {
			b.create(func(s settings) { s.Filter = ofStream("", "a", "c") })
			for _, stream := range []string{"a1", "b1", "c1", "ba"} {
				b.store.add(stream, 1)
			}
			b.takeNames(9, "0@a1", "0@c1")
		}},
		{"by types, of links themselves", func(b *bench) {
			b.create(func(s settings) { s.ResolveLinks, s.Filter = true, &subscription.Filter{Regex: `^\$>$`} })
			b.store.add("a", 1)
			link := b.store.Append("l", event.TypeLink, "0@a", "")
			got := b.takeNames(9, "0@a")
			b.is("link", []any{got[0].ID, got[0].Event.Link}, []any{link, event.LinkResolved})
			b.ack(got...)
			b.is("outstanding", b.info().Outstanding, 0)
		}},
		{"from a position", func(b *bench) {
			b.store.add("a", 3)
			b.create(func(s settings) { s.Filter, s.StartFrom = ofStream("a"), b.position("a", 1) })
			b.takeNames(9, "1@a", "2@a")
		}},
		{"from the end, which stays where it was", func(b *bench) {
			b.store.add("a", 3)
			b.create(func(s settings) { s.Filter, s.StartFrom = ofStream("a"), -1 })
			b.takeNames(9)
			b.store.add("a", 1)
			b.lead()
			b.takeNames(9, "3@a")
		}},
		{"from the end, without what stored the group", func(b *bench) {
			b.store.add("a", 3)
			b.create(func(s settings) { s.StartFrom = -1 })
			b.takeNames(9)
			b.lead()
			b.takeNames(9)
			b.must(b.Create(b.ctx, subscription.Key{Stream: "a", Group: "other"}, subscription.DefaultSettings(), ""))
			b.takeNames(9, "1@"+configStream)
			b.must(b.Delete(b.ctx, b.key, ""))
			b.create(func(s settings) { s.StartFrom = -1 })
			b.takeNames(9)
			b.store.add("a", 1)
			b.takeNames(9, "3@a")
		}},
		{"an update to the end leaves out nothing behind the checkpoint", func(b *bench) {
			b.create(func(s settings) { often(s); s.StartFrom = -1 })
			b.store.add("a", 1)
			b.ack(b.takeNames(9, "0@a")...)
			b.ack(b.takeNames(9, "0@$$$persistentsubscription-$all::g-checkpoint")...)
			b.checkpoint()
			b.must(b.Create(b.ctx, subscription.Key{Stream: "a", Group: "other"}, subscription.DefaultSettings(), ""))
			set := b.info().Settings
			b.must(b.Update(b.ctx, b.key, set, ""))
			b.takeNames(9, "1@"+configStream, "2@"+configStream)
			b.lead()
			b.takeNames(9, "1@"+configStream, "2@"+configStream)
		}},
		{"a filter that may be slow gets on in small pages", func(b *bench) {
			defer func() { b.Stop(); regexp2.StopTimeoutClock() }()
			b.store.add("s", 1000)
			stop := b.position("s", 64)
			b.store.BeforeReadAll.Set(func(_ context.Context, r event.AllRead) error {
				if r.From >= stop {
					return event.ErrBusy
				}
				return nil
			})
			b.create(func(s settings) { often(s); s.Filter = &subscription.Filter{Regex: `^(?!a)b`} })
			b.is("checkpoint", b.checkpoint(), positionText(b.position("s", 63)))
		}},
		{"parked as a link to the event, and replayed", func(b *bench) {
			b.create(onlyA)
			b.store.add("x", 1)
			b.store.add("a", 2)
			b.nack(subscription.Park, b.takeNames(1, "0@a")...)
			b.is("parked", b.parked(), []string{"0@a"})
			e := b.store.All("$persistentsubscription-$all::g-parked")[0]
			b.is("number", strings.Contains(string(e.Metadata), fmt.Sprintf(`"subscriptionEventNumber":%d,`, b.position("a", 0))), true)
			p, err := b.Parked(b.ctx, b.key, 0, 9, true, event.EveryLink)
			b.must(err)
			b.is("desk", []any{p.Total, p.Messages[0].Stream, string(p.Messages[0].Event.Data)}, []any{1, "a", "0"})
			b.replay(-1)
			got := b.takeNames(9, "0@a", "1@a")
			b.is("id", got[0].ID, e.ID)
			b.ack(got...)
			b.pass(pace)
			b.is("checkpoint", b.info().Checkpoint >= b.position("a", 1), true)
			b.takeNames(9)
		}},
		{"the checkpoint passes what the filter leaves out", func(b *bench) {
			b.create(onlyA)
			b.store.add("a", 1)
			b.ack(b.takeNames(1, "0@a")...)
			b.store.add("b", 20)
			b.is("checkpoint", b.checkpoint(), positionText(b.position("a", 0)))
			b.store.add("b", 30)
			b.is("checkpoint", b.checkpoint(), positionText(b.position("b", 49)))
			b.store.Looked.Store(0)
			b.lead()
			if n := b.store.Looked.Load(); n > 10 {
				b.Errorf("%d records were looked at after a restart", n)
			}
			b.store.add("a", 1)
			got := b.takeNames(9, "1@a")
			b.store.add("b", 5000)
			b.is("held back by a message without an answer", b.checkpoint(), positionText(b.position("b", 49)))
			b.ack(got...)
			b.is("checkpoint", b.checkpoint() > positionText(b.position("b", 5000)), true)
		}},
		{"groups that get nothing do not make each other write", func(b *bench) {
			for i := range 40 {
				b.key.Group = fmt.Sprint("g", i)
				b.create(onlyA)
			}
			b.store.add("b", 50)
			b.pass(time.Minute)
			writes := b.store.Writes.Load()
			b.pass(time.Hour)
			b.is("writes", b.store.Writes.Load(), writes)
		}},
		{"goes on behind a checkpoint whose event was scavenged", func(b *bench) {
			b.create(onlyA)
			b.store.add("a", 4)
			b.ack(b.takeNames(2, "0@a", "1@a")...)
			b.is("checkpoint", b.checkpoint(), positionText(b.position("a", 1)))
			b.store.scavenge("a", 0, 1)
			b.lead()
			b.takeNames(9, "2@a", "3@a")
			b.store.scavenge("a", 2)
			b.lead()
			b.takeNames(9, "3@a")
		}},
		{"read on when the buffer has room again", func(b *bench) {
			b.create(func(s settings) { s.Filter, s.BufferSize, s.ReadBatchSize = ofStream("a"), 3, 2 })
			b.store.add("a", 10)
			synctest.Wait()
			b.is("status", b.info().Status, "Behind")
			b.takeNames(9, "0@a", "1@a", "2@a", "3@a", "4@a", "5@a", "6@a", "7@a", "8@a")
			synctest.Wait()
			b.takeNames(9, "9@a")
			b.is("status", b.info().Status, "Live")
		}},
		{"a log that cannot be read is tried again", func(b *bench) {
			b.create(onlyA)
			b.store.BeforeReadAll.Set(func(context.Context, event.AllRead) error { return event.ErrNotReady })
			b.store.add("a", 1)
			b.pass(time.Minute)
			b.is("stalled", strings.HasPrefix(b.info().Stalled, "the source cannot be read"), true)
			b.store.BeforeReadAll.Set(nil)
			b.pass(10 * time.Second)
			b.takeNames(9, "0@a")
		}},
		{"what is known", func(b *bench) {
			b.store.add("a", 2)
			b.create(onlyA)
			b.store.add("b", 1)
			synctest.Wait()
			i := b.info()
			b.is("last known", i.LastKnown, b.position("b", 0))
			b.is("text", []string{i.Position(i.LastKnown), i.Position(-1)}, []string{strings.Trim(positionText(i.LastKnown), `"`), "C:-1/P:-1"})
			b.is("settings", *i.Settings.Filter, *ofStream("a"))
			list, err := b.List(b.ctx, "$all")
			b.must(err)
			b.is("list", len(list), 1)
		}},
		{"a name that begins like it is an ordinary stream", func(b *bench) {
			b.key.Stream = "$allx"
			b.store.add("$allx", 1)
			b.create(nil)
			b.take(9, 0)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(b *bench) { b.key.Stream = "$all"; c.test(b) })
		})
	}
}

func TestSettingsOfGroupsOfTheLog(t *testing.T) {
	run(t, func(b *bench) {
		b.key.Stream = "$all"
		b.store.add("a", 2)
		end := b.store.LogEnd()
		refused := func(want string, edit func(s *subscription.Settings)) {
			b.Helper()
			for _, do := range []func(context.Context, subscription.Key, subscription.Settings, string) error{b.Create, b.Update} {
				s := subscription.DefaultSettings()
				edit(&s)
				err := do(b.ctx, b.key, s, "")
				if errors.Is(err, subscription.ErrNotFound) {
					continue
				}
				bad, ok := errors.AsType[*subscription.SettingsError](err)
				if !ok || bad.Text != want || bad.Plain {
					b.Errorf("%v, want %s", err, want)
				}
			}
		}
		const beyond = "Invalid Start From position: commit position must be less than or equal to the last commit position in the transaction file."
		refused(beyond, func(s *subscription.Settings) { s.StartFrom = end + 1 })
		refused("Invalid Start From position: no event begins at commit position 1.", func(s *subscription.Settings) { s.StartFrom = 1 })
		refused("Invalid filter: no prefix was given.", func(s *subscription.Settings) { s.Filter = &subscription.Filter{Prefixes: []string{""}} })
		b.is("writes", b.store.Writes.Load(), 0)

		for _, c := range []struct {
			filter *subscription.Filter
			want   string
		}{
			{nil, ""},
			{&subscription.Filter{Regex: "^a,", Prefixes: []string{"x"}}, `{"Context":"eventtype","Type":"regex","Data":"^a,","IsAllStream":true}`},
			{&subscription.Filter{OfStream: true, Prefixes: []string{"a", "", "b"}}, `{"Context":"streamid","Type":"prefix","Data":"a,b","IsAllStream":true}`},
			{&subscription.Filter{Prefixes: []string{"a,b", "c"}}, `{"Context":"eventtype","Type":"prefix","Data":"a,b,c","IsAllStream":true,"prefixes":["a,b","c"]}`},
		} {
			b.create(func(s *subscription.Settings) { s.StartFrom, s.Filter = end, c.filter })
			entry := b.lastEntry()
			_, stored, _ := strings.Cut(entry, `"filter":`)
			b.is("filter", strings.TrimSuffix(stored, "}"), c.want)
			b.is("start", strings.Contains(entry, fmt.Sprintf(`"startPosition":"C:%d/P:%d"`, end, end)) && !strings.Contains(entry, `"startFrom"`), true)
			was := b.info().Settings
			b.lead()
			b.is("after a restart", settingsText(b.info().Settings), settingsText(was))
			refused(beyond, func(s *subscription.Settings) { s.StartFrom = b.store.LogEnd() + 1; s.Filter = c.filter })
			b.update(nil)
			was.StartFrom = 0
			b.is("after an update", settingsText(b.info().Settings), settingsText(was))
			b.must(b.Delete(b.ctx, b.key, ""))
		}

		b.key.Stream = "a"
		bad, ok := errors.AsType[*subscription.SettingsError](b.Create(b.ctx, b.key, func() subscription.Settings {
			s := subscription.DefaultSettings()
			s.Filter = &subscription.Filter{Regex: "a"}
			return s
		}(), ""))
		b.is("filter of a stream", []any{ok, bad.Text}, []any{true, "Invalid filter: only the events of $all can be filtered."})
	})
}

func settingsText(s subscription.Settings) string {
	f := fmt.Sprintf("%+v", s.Filter)
	s.Filter = nil
	return fmt.Sprintf("%+v %s", s, f)
}

// lastEntry is what is stored of the group that was made last.
func (b *bench) lastEntry() string {
	all := b.store.Data(configStream)
	text := all[len(all)-1]
	return strings.TrimSuffix(text[strings.LastIndex(text, `{"stream"`):], "]}")
}

// What another version stored is run, if this one can.
func TestStoredGroupsOfTheLog(t *testing.T) {
	run(t, func(b *bench) {
		b.key = subscription.Key{Stream: "$all", Group: "y"}
		b.store.add("order-1", 1)
		b.store.add("other", 1)
		var entries []string
		for i, filter := range []string{`{"Context":"streamid","Type":"prefix","Data":"order-,x","IsAllStream":true}`, `{"Context":"links","Type":"prefix","Data":"a"}`,
			`{"Context":"eventtype","Type":"words","Data":"a"}`, `{"Context":"eventtype","Type":"regex","Data":"("}`} {
			entries = append(entries, fmt.Sprintf(`{"stream":"$all","group":"%c","namedConsumerStrategy":"Pinned","startPosition":"C:0/P:0","historyBufferSize":50,"filter":%s}`, 'y'+byte(i), filter))
		}
		b.store.Append(configStream, "$PersistentConfig", `{"version":"2","entries":[`+strings.Join(entries, ",")+`]}`, "")
		b.store.Append(b.key.CheckpointStream(), "$SubscriptionCheckpoint", `"C:x/P:0"`, "")
		b.lead()
		list, err := b.List(b.ctx, "")
		b.must(err)
		b.is("run", len(list), 1)
		b.takeNames(9, "0@order-1")
	})
}

// A filter that takes too long for a name stops its group there, and no other.
func TestFilterThatTakesTooLong(t *testing.T) {
	defer regexp2.StopTimeoutClock()
	b := &bench{complainer: t, store: newStore(t), ctx: t.Context(), key: subscription.Key{Stream: "$all", Group: "slow"}}
	var later atomic.Int64
	b.Service = subscription.New(subscription.Options{Store: b.store, Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
	b.Start(b.ctx)
	defer b.Stop()
	ready(t, b.Service)
	s := subscription.DefaultSettings()
	s.Filter = &subscription.Filter{Regex: `^(?!z)(a+)+$`}
	b.must(b.Create(b.ctx, b.key, s, ""))
	other := subscription.Key{Stream: "$all", Group: "other"}
	s.Filter = &subscription.Filter{Regex: `^a`}
	b.must(b.Create(b.ctx, other, s, ""))

	b.store.Append("s", "aa", "", "")
	b.store.Append("s", "ab", "", "")
	b.store.Append("s", strings.Repeat("a", 40)+"!", "", "")
	b.store.Append("s", "aaa", "", "")
	take := func(k subscription.Key, want ...int64) {
		t.Helper()
		var all []subscription.Message
		testkit.Eventually(t, 10*time.Second, func() error {
			got, err := b.Read(b.ctx, k, 9, event.EveryLink)
			all = append(all, got...)
			if len(all) < len(want) {
				return fmt.Errorf("%d messages, %w", len(all), err)
			}
			return nil
		})
		b.is("numbers", numbers(all), want)
	}
	take(other, 0, 1, 2, 3)
	take(b.key, 0)
	testkit.Eventually(t, 10*time.Second, func() error {
		later.Add(int64(time.Minute))
		i, err := b.Info(b.ctx, b.key)
		if want := "the source cannot be read: filter by the name \"" + strings.Repeat("a", 40) + "!\": the regular expression took too long"; i.Stalled != want {
			return fmt.Errorf("stalled: %q, %w", i.Stalled, err)
		}
		return nil
	})
	i, err := b.Info(b.ctx, other)
	b.must(err)
	b.is("the other", i.Status, "Live")
	b.store.scavenge("s", 2)
	take(b.key, 3)
}

// A group whose filter takes its time gets on over what that leaves out.
func TestSlowFilter(t *testing.T) {
	defer regexp2.StopTimeoutClock()
	const slow = `(?=(x+x+)+y)`
	names := check.Value(match.Expression(slow)).Must(t)
	name := ""
	for took := time.Duration(0); took < match.Timeout/20; {
		name += "x"
		begun := time.Now()
		check.Must(t, check.Err(names.Match(name)))
		took = time.Since(begun)
	}
	b := &bench{complainer: t, store: newStore(t), ctx: t.Context(), key: subscription.Key{Stream: "$all", Group: "slow"}}
	for range 2000 {
		b.store.Append("s", name, "", "")
	}
	b.Service = subscription.New(subscription.Options{Store: b.store})
	b.Start(b.ctx)
	defer b.Stop()
	ready(t, b.Service)
	s := subscription.DefaultSettings()
	s.MaxCheckpointCount, s.Filter = 1, &subscription.Filter{Regex: slow}
	b.must(b.Create(b.ctx, b.key, s, ""))
	testkit.Eventually(t, 5*time.Second, func() error {
		i, err := b.Info(b.ctx, b.key)
		if i.Checkpoint < 0 {
			return fmt.Errorf("no checkpoint, %w", err)
		}
		return nil
	})
}
