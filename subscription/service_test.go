package subscription_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
	"github.com/annalsdb/annals/subscription"
)

const configStream = "$persistentSubscriptionConfig"

func (b *bench) config() map[string]any {
	b.Helper()
	all := b.store.Data(configStream)
	var doc map[string]any
	b.must(json.Unmarshal([]byte(all[len(all)-1]), &doc))
	return doc
}

func TestService(t *testing.T) {
	type settings = *subscription.Settings
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"what is stored", func(b *bench) {
			b.create(func(s settings) { s.StartFrom, s.ResolveLinks = 7, true })
			doc := b.config()
			b.is("type", b.store.All(configStream)[0].Type, "$PersistentConfig")
			b.is("metadata", b.store.Metadata(configStream), `{"$maxCount":2}`)
			b.is("version", doc["version"], "2")
			b.is("by", doc["updatedBy"], "admin")
			b.is("entries", doc["entries"], []any{map[string]any{
				"stream": "s", "group": "g", "resolveLinkTos": true, "messageTimeout": 10000, "startFrom": 7, "startPosition": "7",
				"liveBufferSize": 500, "historyBufferSize": 500, "maxRetryCount": 10, "readBatchSize": 20, "checkPointAfter": 1000,
				"minCheckPointCount": 10, "maxCheckPointCount": 500, "maxSubscriberCount": 10, "namedConsumerStrategy": "RoundRobin",
			}})
		}},
		{"settings survive, those of zero too", func(b *bench) {
			want := subscription.Settings{LiveBufferSize: 1, BufferSize: 2, ReadBatchSize: 1, StartFrom: -1, Strategy: subscription.Pinned}
			b.create(func(s settings) { *s = want })
			b.lead()
			b.is("settings", b.info().Settings, want)
		}},
		{"delays survive too, and are members of their own", func(b *bench) {
			want := subscription.DefaultSettings()
			want.RetryDelay, want.CheckpointAtLeastEvery = 1500*time.Millisecond, time.Minute
			want.RetryBackoff = subscription.Backoff{Factor: 1.5, AtMost: time.Minute}
			b.create(func(s settings) { *s = want })
			entry := b.config()["entries"].([]any)[0].(map[string]any)
			b.is("entry", []any{entry["retryDelayMilliseconds"], entry["retryBackoff"], entry["checkpointAtLeastEveryMilliseconds"]},
				[]any{1500, map[string]any{"factor": 1.5, "atMostMilliseconds": 60000}, 60000})
			b.lead()
			b.is("settings", b.info().Settings, want)
		}},
		{"an entry with delays that cannot be is kept and not run", func(b *bench) {
			b.store.Append(configStream, "$PersistentConfig", `{"version":"2","entries":[{"stream":"s","group":"g","historyBufferSize":9,"namedConsumerStrategy":"Pinned","retryDelayMilliseconds":-5}]}`, "")
			b.lead()
			_, err := b.Info(b.ctx, b.key)
			b.is("info", err, subscription.ErrNotFound)
		}},
		{"life", func(b *bench) {
			b.create(nil)
			b.is("twice", b.Create(b.ctx, b.key, subscription.DefaultSettings(), ""), subscription.ErrExists)
			b.must(b.Delete(b.ctx, b.key, ""))
			b.is("deleted twice", b.Delete(b.ctx, b.key, ""), subscription.ErrNotFound)
			b.is("updated", b.Update(b.ctx, b.key, subscription.DefaultSettings(), ""), subscription.ErrNotFound)
			_, err := b.Read(b.ctx, b.key, 1, nil)
			b.is("read", err, subscription.ErrNotFound)
			_, err = b.Info(b.ctx, b.key)
			b.is("info", err, subscription.ErrNotFound)
			b.is("replay", b.Replay(b.ctx, b.key, -1, 0), subscription.ErrNotFound)
			b.must(b.Ack(b.ctx, b.key, nil))
			b.must(b.Nack(b.ctx, b.key, nil, subscription.Park, "", nil))
			all, err := b.List(b.ctx, "")
			b.must(err)
			b.is("list", all, []subscription.Info{})
		}},
		{"a deletion takes the streams away", func(b *bench) {
			b.store.add("s", 4)
			b.create(func(s settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 })
			b.parkAll(0, 1)
			b.replay(1)
			b.must(b.Delete(b.ctx, b.key, ""))
			for _, suffix := range []string{"checkpoint", "parked", "replaying"} {
				b.is(suffix, b.store.Data("$persistentsubscription-s::g-"+suffix), []string{})
			}
			b.create(nil)
			b.is("parked", b.info().Parked, 0)
			b.ack(b.take(9, 0, 1, 2, 3)...)
		}},
		{"a deletion that was cut short leaves nothing to the next group", func(b *bench) {
			b.store.add("s", 2)
			b.create(func(s settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 })
			b.ack(b.take(1, 0)...)
			b.store.BeforeWrite.Set(func(_ context.Context, w *event.Write) error {
				if w.Kind == event.SoftDelete {
					return event.ErrBusy
				}
				return nil
			})
			b.is("error", errors.Is(b.Delete(b.ctx, b.key, ""), event.ErrBusy), true)
			b.store.BeforeWrite.Set(nil)
			b.create(nil)
			b.take(9, 0, 1)
		}},
		{"order of lists", func(b *bench) {
			for _, k := range []subscription.Key{{"b", "2"}, {"a", "x"}, {"b", "1"}, {"a", "c"}} {
				b.key = k
				b.create(nil)
			}
			b.key = subscription.Key{Stream: "b", Group: "2"}
			b.update(nil)
			list := func(stream string) (keys []string) {
				all, err := b.List(b.ctx, stream)
				b.must(err)
				for _, i := range all {
					keys = append(keys, i.Key.String())
				}
				return keys
			}
			b.is("all", list(""), []string{"a::x", "a::c", "b::2", "b::1"})
			b.lead()
			b.is("all of the next leader", list(""), []string{"a::x", "a::c", "b::2", "b::1"})
			b.is("of a stream", list("b"), []string{"b::2", "b::1"})
		}},
		{"creations at the same time", func(b *bench) {
			errs := make(chan error)
			for range 10 {
				go func() { errs <- b.Create(b.ctx, b.key, subscription.DefaultSettings(), "") }()
			}
			made := 0
			for range 10 {
				if err := <-errs; err == nil {
					made++
				} else if err != subscription.ErrExists {
					b.Error(err)
				}
			}
			b.is("made", made, 1)
			b.is("entries", len(b.config()["entries"].([]any)), 1)
		}},
		{"two leaders cannot both change it", func(b *bench) {
			other := subscription.New(subscription.Options{Store: b.store})
			other.Start(b.ctx)
			defer other.Stop()
			synctest.Wait()
			b.create(nil)
			k := subscription.Key{Stream: "t", Group: "g"}
			b.is("error", errors.Is(other.Create(b.ctx, k, subscription.DefaultSettings(), ""), event.ErrNotReady), true)
			synctest.Wait()
			b.must(other.Create(b.ctx, k, subscription.DefaultSettings(), ""))
			b.is("entries", len(b.config()["entries"].([]any)), 2)
		}},
		{"a creation whose outcome is unknown is found out", func(b *bench) {
			b.store.AfterWrite.Set(func(_ context.Context, w *event.Write) error {
				if w.Stream == configStream {
					return errInjected
				}
				return nil
			})
			b.is("error", errors.Is(b.Create(b.ctx, b.key, subscription.DefaultSettings(), ""), event.ErrOutcomeUnknown), true)
			b.store.AfterWrite.Set(nil)
			synctest.Wait()
			b.is("status", b.info().Status, "Live")
			b.is("again", b.Create(b.ctx, b.key, subscription.DefaultSettings(), ""), subscription.ErrExists)
		}},
		{"entries that cannot be run are kept", func(b *bench) {
			b.store.Append(configStream, "$PersistentConfig", `{"version":"2","entries":[{"stream":"a","group":"x","namedConsumerStrategy":"Mine","own":1},
				{"stream":"$all","group":"y","namedConsumerStrategy":"Pinned","startPosition":"7","historyBufferSize":50},
				{"stream":"a","group":"y","namedConsumerStrategy":"Pinned"},
				{"stream":"a","group":"z","namedConsumerStrategy":"Pinned","startFrom":3,"startPosition":"4","historyBufferSize":50,"readBatchSize":5}]}`, "")
			b.lead()
			all, err := b.List(b.ctx, "")
			b.must(err)
			b.is("run", len(all), 1)
			b.is("start", all[0].Settings.StartFrom, 4)
			b.create(nil)
			entries := b.config()["entries"].([]any)
			b.is("entries", len(entries), 5)
			b.is("first", entries[0], map[string]any{"stream": "a", "group": "x", "namedConsumerStrategy": "Mine", "own": 1})
		}},
		{"a configuration that cannot be read is not written over", func(b *bench) {
			b.store.Append(configStream, "$PersistentConfig", `{"version":"9","entries":[]}`, "")
			b.lead()
			b.is("error", b.Create(b.ctx, b.key, subscription.DefaultSettings(), ""), event.ErrNotReady)
			b.is("trouble", fmt.Sprint(b.Trouble()), `persistent subscriptions cannot be loaded: event 0 of stream $persistentSubscriptionConfig has version "9", which is not known`)
			b.store.Append(configStream, "$PersistentConfig", `{"version":"2","entries":[]}`, "")
			b.pass(time.Minute)
			b.is("trouble", b.Trouble(), nil)
			b.create(nil)
		}},
		{"a group that cannot begin does not keep others from running", func(b *bench) {
			b.store.add("good", 1)
			b.store.Append(configStream, "$PersistentConfig", `{"version":"2","entries":[
				{"stream":"bad","group":"g","startFrom":-1,"historyBufferSize":50,"readBatchSize":5},
				{"stream":"good","group":"g","historyBufferSize":50,"readBatchSize":5}]}`, "")
			b.store.BeforeInfo.Set(func(_ context.Context, stream string) error {
				if stream == "bad" {
					return errors.New("damaged")
				}
				return nil
			})
			b.lead()
			b.key = subscription.Key{Stream: "good", Group: "g"}
			b.take(9, 0)
			b.is("trouble", b.Trouble(), nil)
			b.key = subscription.Key{Stream: "bad", Group: "g"}
			_, err := b.Info(b.ctx, b.key)
			b.is("bad", err, event.ErrNotReady)
			b.store.BeforeInfo.Set(nil)
			b.pass(time.Minute)
			b.is("bad", b.info().Status, "Live")
		}},
		{"restart loads all again", func(b *bench) {
			b.store.add("s", 2)
			b.create(func(s settings) { s.MaxRetryCount = 4 })
			b.take(2, 0, 1)
			goOn := make(chan struct{})
			b.store.BeforeRead.Set(func(context.Context, event.StreamRead) error { <-goOn; return nil })
			answered := make(chan error, 1)
			go func() { answered <- b.Restart(b.ctx) }()
			synctest.Wait()
			_, err := b.Info(b.ctx, b.key)
			b.is("while it loads", err, event.ErrNotReady)
			b.is("answers while it loads", len(answered), 0)
			close(goOn)
			b.must(<-answered)
			b.is("settings", b.info().Settings.MaxRetryCount, 4)
			b.take(2, 0, 1)
		}},
		{"nothing while the node does not lead", func(b *bench) {
			b.create(nil)
			b.Stop()
			b.Stop()
			_, read := b.Read(b.ctx, b.key, 1, nil)
			_, list := b.List(b.ctx, "")
			for _, err := range []error{read, list, b.Ack(b.ctx, b.key, nil), b.Restart(b.ctx), b.Delete(b.ctx, b.key, ""),
				b.Create(b.ctx, b.key, subscription.DefaultSettings(), "")} {
				b.is("error", err, event.ErrNotReady)
			}
			b.Start(b.ctx)
			b.Start(b.ctx)
			synctest.Wait()
			b.is("status", b.info().Status, "Live")
		}},
		{"stop returns while writes hang", func(b *bench) {
			b.store.add("s", 9)
			b.create(func(s settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 })
			b.parkAll(1, 0)
			es := b.take(5, 2, 3, 4, 5, 6)
			b.store.BeforeWrite.Set(func(ctx context.Context, _ *event.Write) error { <-ctx.Done(); return ctx.Err() })
			b.replay(-1)
			b.ack(es[0])
			b.nack(subscription.Park, es[1])
			go func() {
				_ = b.Create(b.ctx, subscription.Key{Stream: "t", Group: "g"}, subscription.DefaultSettings(), "")
			}()
			synctest.Wait()
			begun := time.Now()
			b.Stop()
			b.is("time", time.Since(begun), time.Duration(0))
		}},
		{"a write that hangs ends after the time allowed", func(b *bench) {
			b.store.BeforeWrite.Set(func(ctx context.Context, _ *event.Write) error { <-ctx.Done(); return ctx.Err() })
			begun := time.Now()
			err := b.Create(b.ctx, b.key, subscription.DefaultSettings(), "")
			b.is("error", errors.Is(err, event.ErrWriteTimeout), true)
			b.is("time", time.Since(begun), 10*time.Second)
		}},
		{"a stream that cannot be read is tried again", func(b *bench) {
			b.store.add("s", 1)
			b.store.BeforeRead.Set(func(context.Context, event.StreamRead) error { return event.ErrNotReady })
			b.create(nil)
			b.is("status", b.info().Status, "NotReady")
			b.take(1)
			b.pass(time.Minute)
			b.is("stalled", strings.HasPrefix(b.info().Stalled, "the group cannot be loaded: "), true)
			b.store.BeforeRead.Set(nil)
			b.pass(10 * time.Second)
			b.take(1, 0)
		}},
		{"statistics", func(b *bench) {
			b.store.add("s", 5)
			b.create(nil)
			b.info()
			es := b.take(4, 0, 1, 2, 3)
			b.pass(2 * time.Second)
			b.ack(es[0])
			i := b.info()
			b.is("statistics", []any{i.PerSecond, i.Total, i.SinceLast, i.LastKnown, i.ReadBuffer, i.Outstanding, i.Checkpoint},
				[]any{2.0, 4, 4, 4, 1, 3, -1})
			b.is("oldest", time.Since(i.OldestOutstanding), 2*time.Second)
			i = b.info()
			b.is("statistics", []any{i.PerSecond, i.Total, i.SinceLast}, []any{0.0, 4, 0})
		}},
	} {
		t.Run(c.name, func(t *testing.T) { run(t, c.test) })
	}
}

func TestValidate(t *testing.T) {
	type settings = *subscription.Settings
	for _, c := range []struct {
		name  string
		edit  func(s settings)
		text  string
		plain bool
	}{
		{"defaults", func(settings) {}, "", false},
		{"first", func(s settings) { s.BufferSize, s.LiveBufferSize = 0, 0 }, "Buffer Size (0) must be positive", true},
		{"second", func(s settings) { s.LiveBufferSize, s.ReadBatchSize = -1, 0 }, "Live Buffer Size (-1) must be positive", true},
		{"third", func(s settings) { s.ReadBatchSize = 0 }, "Read Batch Size (0) must be positive", true},
		{"equal", func(s settings) { s.ReadBatchSize, s.Strategy = 500, "x" }, "BufferSize (500) must be larger than ReadBatchSize (500)", true},
		{"strategy", func(s settings) { s.Strategy, s.StartFrom = "pinned", -2 }, "Consumer strategy pinned does not exist.", false},
		{"start", func(s settings) { s.StartFrom = -2 }, "Invalid Start From position: event number must be greater than or equal to -1.", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := subscription.DefaultSettings()
			c.edit(&s)
			var bad *subscription.SettingsError
			err := s.Validate()
			if !errors.As(err, &bad) {
				bad = &subscription.SettingsError{}
			}
			if bad.Text != c.text || bad.Plain != c.plain || (err == nil) != (c.text == "") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r stats.Registry
		b := newBench(t)
		b.Stop()
		b.Service = subscription.New(subscription.Options{Store: b.store, Stats: &r})
		b.Start(b.ctx)
		defer b.Stop()
		synctest.Wait()
		statistics := func() map[string]float64 {
			all := map[string]float64{}
			r.Each(func(s stats.Sample) {
				if strings.Contains(s.Name, "subscription") {
					all[s.Name] = s.Value
				}
			})
			return all
		}
		b.store.add("s", 5)
		b.create(nil)
		b.parkAll(0, 1)
		b.take(1, 2)
		b.after(time.Minute, b.take(1, 3)...)
		b.pause()
		b.pass(3 * time.Second)
		all := statistics()
		for name, want := range map[string]float64{
			"annals_subscription_lag_events": 5, "annals_subscription_oldest_unacknowledged_seconds": 3,
			"annals_subscription_oldest_parked_seconds": 3, "annals_subscription_stalled": 0, "annals_subscription_groups": 1,
			"eventstore_persistent_subscriptions_messages_parked": 2, "eventstore_persistent_subscriptions_replays_requested": 0,
			"annals_subscription_delivered_total": 4, "annals_subscription_delayed_messages": 1, "annals_subscription_paused": 1,
		} {
			if got, ok := all[name]; !ok || got != want {
				t.Errorf("%s: %g %t, want %g", name, got, ok, want)
			}
		}
		b.must(b.Delete(b.ctx, b.key, ""))
		if _, ok := statistics()["annals_subscription_lag_events"]; ok {
			t.Error("the series of a deleted group stay")
		}
	})
}
