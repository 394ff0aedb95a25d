package fsm_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/fsm"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/stats"
)

// conditional plays writes with conditions, of which entries are decided, in flight and applied.
type conditional struct {
	*rand.Rand
	*leader
	ids   int
	early []*event.Write // the leader has looked at them, and others were decided since
}

// records are all events as things were decided, in their order.
func (c *conditional) records() (list []event.Record) {
	list = c.all()
	add := func(records []byte) {
		for len(records) > 0 {
			it := check.Value(chunkfile.ParseItem(records)).Must(c.t.(*testing.T))
			list = append(list, event.Record{Position: it.Position(), Stream: string(it.Stream()), Number: it.Number(), Type: string(it.EventType()),
				ID: it.Id(), Time: it.Time(), Data: slices.Clone(it.Data()), Metadata: slices.Clone(it.Metadata())})
			records = records[len(it):]
		}
	}
	for _, e := range c.sealed {
		add(check.Value(fsm.ParseEntry(e)).Must(c.t.(*testing.T)).Records)
	}
	_, building := fsm.Building(c.d)
	add(building)
	return list
}

// firstConflict is the lowest position of an event that fails a condition, -1: none does.
func firstConflict(records []event.Record, cond *event.Condition) int64 {
	last, metadata := map[string]int64{}, map[string]event.Metadata{}
	withdrawn := map[string]bool{}
	for _, r := range records {
		if r.Stream == event.RedactionsStream {
			withdrawn[string(r.Data)] = true
		}
		if last[r.Stream] = r.Number; strings.HasPrefix(r.Stream, "$$") {
			metadata[r.Stream[2:]] = event.ParseMetadata(r.Data)
		}
	}
	for _, r := range records {
		m := metadata[r.Stream]
		if withdrawn[redacted(&r)] {
			r.Metadata = nil
		}
		switch {
		case r.Position <= cond.After, r.Stream[0] == '$', last[r.Stream] == event.TombstoneNumber, m.SoftDeleted(),
			r.Number < m.TruncateBefore, m.MaxCount > 0 && r.Number <= last[r.Stream]-m.MaxCount:
			continue
		}
		for _, i := range cond.Query.Items {
			if (len(i.Types) == 0 || slices.Contains(i.Types, r.Type)) && (len(i.Streams) == 0 || slices.Contains(i.Streams, r.Stream)) &&
				!slices.ContainsFunc(i.Tags, func(tag string) bool { return !strings.Contains(string(r.Metadata), `"`+tag+`"`) }) {
				return r.Position
			}
		}
		if cond.Query.All {
			return r.Position
		}
	}
	return -1
}

// redacted is what the log says of an event whose metadata is redacted.
func redacted(r *event.Record) string {
	return fmt.Sprintf(`{"metadata":true,"events":[{"position":%d,"eventId":%q}]}`, r.Position, r.ID)
}

// redact has the log say that the metadata of some event is redacted.
func (c *conditional) redact() {
	records := c.records()
	if len(records) == 0 {
		return
	}
	c.ids++
	w := appending(event.RedactionsStream, -2, c.ids)
	w.Events[0].Type, w.Events[0].Data = event.TypeRedacted, []byte(redacted(&records[c.IntN(len(records))]))
	c.decide(w)
}

func (c *conditional) write() *event.Write {
	w := &event.Write{Kind: event.AppendMany, Many: &event.Many{Streams: []string{fmt.Sprint("s-", c.IntN(4))}}}
	for range 1 + c.IntN(2) {
		c.ids++
		w.Many.Of = append(w.Many.Of, 0)
		w.Events = append(w.Events, event.Proposed{ID: id(c.ids), Type: fmt.Sprint("T", c.IntN(3)), Metadata: fmt.Appendf(nil, `{"$tags":["a%d","b%d"]}`, c.IntN(3), c.IntN(3))})
	}
	ends := []int64{-1, max(0, c.d.End()-1), max(0, c.d.End()-1), c.Int64N(c.d.End() + 1)}
	for range 1 + c.IntN(2) {
		cond := event.Condition{After: min(ends[c.IntN(len(ends))], max(0, c.d.End()-1))}
		var i event.QueryItem
		for range c.IntN(3) {
			i.Tags = append(i.Tags, fmt.Sprint([]string{"a", "b"}[c.IntN(2)], c.IntN(3)))
		}
		if c.IntN(3) == 0 {
			i.Types = []string{"T0", "T1"}
		}
		if c.IntN(4) == 0 {
			i.Streams = []string{fmt.Sprint("s-", c.IntN(4))}
		}
		if cond.Query.Items = []event.QueryItem{i}; len(i.Tags)+len(i.Types)+len(i.Streams) == 0 {
			cond.Query = event.Query{All: true}
		}
		w.Many.Conditions = append(w.Many.Conditions, cond)
	}
	return w
}

func (c *conditional) judge(w *event.Write) {
	records := c.records()
	var want []string
	for i := range w.Many.Conditions {
		if at := firstConflict(records, &w.Many.Conditions[i]); at >= 0 {
			want = append(want, fmt.Sprint(i, "@", at))
		}
	}
	_, err := c.decide(w)
	var got []string
	if v, ok := errors.AsType[*event.Violations](err); ok {
		for _, x := range v.Conditions {
			got = append(got, fmt.Sprint(x.Index, "@", x.Event.Position))
		}
	} else if err != nil {
		c.t.Fatalf("%v", err)
	}
	if !slices.Equal(got, want) {
		c.t.Fatalf("%+v after %d: conflicts %v, want %v", w.Many.Conditions, w.Many.Conditions[0].After, got, want)
	}
}

// A condition is judged on everything decided before it, and names the first event that fails it,
// whatever was hidden, shown again, applied, or looked at before.
func TestConditionsAgainstTheLog(t *testing.T) {
	for seed := range uint64(30) {
		c := &conditional{Rand: rand.New(rand.NewPCG(seed, 7)), leader: startLeader(t)}
		for range 250 {
			stream := fmt.Sprint("s-", c.IntN(4))
			switch c.IntN(17) {
			case 0:
				c.seal()
			case 16:
				c.redact()
			case 1:
				c.seal()
				c.apply(1 + c.IntN(3))
			case 2:
				c.decide(deleting(event.SoftDelete, stream, -2))
			case 3:
				c.ids++
				document := []string{`{}`, `{"$maxCount":2}`, `{"$tb":3}`}[c.IntN(3)]
				c.decide(describing(stream, -2, c.ids, document))
			case 4, 5, 6:
				c.early = append(c.early, check.Value(c.log.Facts.Look(t.Context(), c.write())).Must(t))
			case 7, 8:
				if n := len(c.early); n > 0 {
					i := c.IntN(n)
					c.judge(c.early[i])
					c.early = slices.Delete(c.early, i, i+1)
				}
			default:
				c.judge(c.write())
			}
			c.answers = nil
		}
		c.flush()
	}
}

// A write whose condition its own events fail was done before, however long ago, and a position of
// another log is refused.
func TestConditionsOfRepeatedWrites(t *testing.T) {
	l := startLeader(t)
	taken := event.Query{Items: []event.QueryItem{{Types: []string{"happened"}}}}
	w := gathered(nil, appending("a", -2, 1, 2), appending("b", -2, 1))
	w.Many.Conditions = []event.Condition{{Query: taken, After: -1}}
	first := l.write(w)
	l.flush()
	again := l.write(w)
	check.Equal(t, fmt.Sprint(again.Idempotent, again.Position, again.Streams), fmt.Sprint(true, first.Position, first.Streams), "repeated")
	registry := new(stats.Registry)
	forgets := fsm.NewDecider(forgetful{l.log.Facts}, l.now)
	forgets.Watch(registry)
	check.Must(t, forgets.Reset())
	d := forgets.Decide(w)
	check.Equal(t, fmt.Sprint(d.Written.Idempotent, d.Written.Position, d.Written.Streams, d.Err), fmt.Sprint(true, first.Position, first.Streams, nil), "ids are forgotten")
	other := gathered(nil, appending("a", -2, 3))
	other.Many.Conditions = []event.Condition{{Query: taken, After: -1}}
	v := &event.Violations{}
	if err := forgets.Decide(other).Err; !errors.As(err, &v) || v.Conditions[0].Event.Number != 0 || v.Conditions[0].Event.Stream != "a" {
		t.Errorf("%v", err)
	}
	other.Many.Conditions[0].After = math.MaxInt64 - 1
	check.Equal(t, forgets.Decide(other).Err.Error(), "Position 9223372036854775806 lies beyond the end of the log.", "a position of another log")
	other.Many.Conditions = []event.Condition{{Query: taken, After: first.Position}, {Query: taken, After: first.Position}, {Query: taken, After: 0}}
	check.Equal(t, errors.As(forgets.Decide(other).Err, &v), true, "two hold and one fails")
	counts := map[string]float64{}
	registry.Each(func(s stats.Sample) {
		if s.Name == "annals_conditions_total" {
			counts[s.Labels[0].Value] = s.Value
		} else if s.Histogram != nil {
			counts[s.Name] = float64(s.Histogram.Count)
		}
	})
	check.Equal(t, fmt.Sprint(counts), "map[annals_condition_decide_seconds:2 failed:2 held:2 repeated:1]", "counts")
}

// forgetful remembers no ids.
type forgetful struct{ fsm.Log }

func (forgetful) FindID(string, event.ID) (int64, bool, error) { return 0, false, nil }

// Events that were hidden when the leader looked count if metadata show them again before the write
// is decided, and those hidden since do not.
func TestConditionsWhereWhatIsHiddenChanges(t *testing.T) {
	for name, s := range map[string]struct {
		before, after *event.Write // metadata of the stream
		want          string
	}{
		"shown again":  {describing("a", -2, 11, `{"$tb":2}`), describing("a", -2, 12, `{}`), "0"},
		"hidden since": {describing("a", -2, 11, `{}`), describing("a", -2, 12, `{"$tb":1}`), "1"},
		"all hidden":   {describing("a", -2, 11, `{}`), deleting(event.SoftDelete, "a", -2), "none"},
		"by the count": {describing("a", -2, 11, `{"$maxCount":2}`), appending("a", -2, 4), "2"},
	} {
		t.Run(name, func(t *testing.T) {
			l := startLeader(t)
			l.write(appending("a", -2, 1, 2, 3))
			l.write(s.before)
			l.flush()
			w := gathered(nil, appending("b", -2, 5))
			w.Many.Conditions = []event.Condition{{Query: event.Query{Items: []event.QueryItem{{Streams: []string{"a"}}}}, After: -1}}
			looked := check.Value(l.log.Facts.Look(t.Context(), w)).Must(t)
			l.write(s.after)
			got := "none"
			if v, ok := errors.AsType[*event.Violations](l.d.Decide(looked).Err); ok {
				got = fmt.Sprint(v.Conditions[0].Event.Number)
			}
			check.Equal(t, got, s.want, "number of the conflict")
		})
	}
}
