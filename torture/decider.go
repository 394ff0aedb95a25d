package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/event"
)

// game is what a decision is about. It follows from the id of its events.
type game int

const (
	seats   game = iota // a seat is taken once
	names               // a name is taken once, and no one looks before
	budgets             // two budgets bear each cost
	courses             // a course has few places, and a student takes few courses
	mixed               // conditions next to expected versions, and appends without either
	games
)

// decided are the types of events by games.
var decided = [games]string{"seat", "name", "cost", "course", "mixed"}

const (
	decisionStream = "decision-"
	// decisionsPerBoard bounds what is decided of the same tags before others take their place.
	decisionsPerBoard = 150
)

// label is a tag of events, whose weights together are never more than most. 0: no bound.
type label struct {
	tag  string
	most int
}

// decision is what is special about a write with conditions.
type decision struct {
	labels     []label // of each of its events
	conditions []client.Condition
	checks     []client.Check
	plain      bool // by the path of its stream, without conditions and checks

	// What the last answer told.
	told   client.Appended
	broken client.ViolationError
}

func (d *decision) tags() (tags []string) {
	for _, l := range d.labels {
		tags = append(tags, l.tag)
	}
	return tags
}

func (d *decision) String() string {
	return fmt.Sprintf("decision with tags %v, conditions %s, checks %v, answered %+v, %+v", d.tags(), made(json.Marshal(d.conditions)), d.checks, d.told, d.broken)
}

// decider is a client that reads by queries on any node, and writes under the condition that what
// it read is still all there is.
type decider struct {
	*writer
	earlier *int64 // position of an earlier reading
}

func newDecider(l *load, j *journal) {
	d := &decider{writer: newWriter(l, j)}
	l.employ(d.turn)
}

func (d *decider) turn(ctx context.Context) time.Duration {
	if !d.hist.reserve() {
		return enough
	}
	if d.rng.IntN(3) == 0 {
		d.wander()
	}
	if len(d.recent) > 0 && d.rng.IntN(8) == 0 {
		d.again(ctx)
	} else if dec, stream := d.plan(d.journal.next()); d.mayTake(ctx, dec) {
		d.take(ctx, dec, stream)
	}
	return time.Duration(d.rng.ExpFloat64() * float64(d.pace))
}

// plan chooses what to decide in the operation that begins with a ref.
func (d *decider) plan(next ref) (*decision, *stream) {
	g := d.ids.game(next)
	board := fmt.Sprintf("%s%s%s-%d", d.prefix, decisionStream, decided[g], d.generation(registers+int(g), decisionsPerBoard))
	one := func(of string, count, most int) label {
		return label{fmt.Sprintf("%s-%s-%d", board, of, d.rng.IntN(count)), most}
	}
	dec := &decision{}
	s := d.plainStream(fmt.Sprintf("%s-%d", board, d.rng.IntN(3)))
	query := func(items ...client.QueryItem) {
		dec.conditions = append(dec.conditions, client.Condition{Query: client.Query{Items: items}})
	}
	types := decided[g : g+1]
	switch g {
	case seats:
		dec.labels = []label{one("seat", 40, 1)}
	case names:
		dec.labels = []label{one("name", 40, 1)}
	case budgets:
		dec.labels = []label{one("team", 3, 300), one("project", 3, 300)}
	case courses:
		dec.labels = []label{one("course", 10, 5), one("student", 20, 3)}
	default:
		dec.labels = []label{one("a", 3, 0), one("b", 3, 0)}[:1+d.rng.IntN(2)]
		if dec.plain = d.rng.IntN(4) == 0; dec.plain {
			return dec, s
		}
		switch d.rng.IntN(3) {
		case 0:
			query(client.QueryItem{Types: types, Streams: []string{s.name}})
		case 1:
			query(client.QueryItem{Categories: []string{"torture"}, Tags: dec.tags()})
			query(client.QueryItem{Streams: []string{s.name}, Tags: dec.tags()[:1]}, client.QueryItem{Types: decided[:1], Tags: dec.tags()})
		default:
			query(client.QueryItem{Tags: []string{one("a", 3, 0).tag, one("b", 3, 0).tag}})
		}
		if last, heard := d.known[s]; heard && d.rng.IntN(2) == 0 {
			dec.checks = []client.Check{{Stream: s.name, Expected: last}}
		}
		return dec, s
	}
	var items []client.QueryItem
	for _, tag := range dec.tags() {
		items = append(items, client.QueryItem{Types: types, Tags: []string{tag}})
	}
	query(items...)
	return dec, s
}

// mayTake reads what a decision is based on, and reports whether the bounds permit it.
func (d *decider) mayTake(ctx context.Context, dec *decision) bool {
	if len(dec.conditions) == 0 || d.ids.game(d.journal.next()) == names {
		return true
	}
	all := client.Query{}
	for i := range dec.conditions {
		all.Items = append(all.Items, dec.conditions[i].Query.Items...)
	}
	position := d.earlier
	sums := map[string]int{}
	if d.ids.game(d.journal.next()) != mixed || position == nil || d.rng.IntN(2) == 0 {
		page, ok := d.look(ctx, all)
		if !ok {
			d.count.add(ofDecisions, "unread", 1)
			d.wander()
			return false
		}
		for _, e := range page.Events {
			r := d.found(&e)
			for _, tag := range e.Tags {
				sums[tag] += d.ids.weight(r)
			}
		}
		position, d.earlier = page.Position, page.Position
	}
	for _, l := range dec.labels {
		for i := range d.ids.decides(d.journal.next()) {
			sums[l.tag] += d.ids.weight(d.journal.next() + ref(i))
		}
		if l.most > 0 && sums[l.tag] > l.most {
			d.count.add(ofDecisions, "declined", 1)
			return false
		}
	}
	for i := range dec.conditions {
		dec.conditions[i].After = position
	}
	return true
}

// asks reads what a query finds, without data.
func asks(query client.Query, o client.QueryOptions) client.Request {
	o.NoData = true
	return made(client.QueryRequest(query, o))
}

// found is the ref of an event that a query found, 0 if it is none of this run.
func (l *load) found(e *client.Found) ref {
	if id, err := event.ParseID(e.ID); err == nil {
		if r, ok := l.ids.ref(id); ok && l.ids.isDecision(r) {
			return r
		}
	}
	return 0
}

// take writes a decision, with the same ids until the outcome is certain.
func (d *decider) take(ctx context.Context, dec *decision, s *stream) {
	begun := op{kind: opDecision, stream: s, decision: dec, expected: anyVersion, count: uint16(d.ids.decides(d.journal.next()))}
	first, o := d.repeat(ctx, begun, never/2, func(first ref, o *op) verdict {
		v, node := d.send(ctx, dec, s, first)
		o.node = int8(node)
		return v
	})
	d.count.add(ofDecisions, written[o.outcome], 1)
	if o.outcome != done {
		return
	}
	d.count.add(ofDecisions, decided[d.ids.game(first)], 1)
	d.known[s] = o.number + int64(o.count) - 1
	d.book.acknowledge(s, o.number, first, int(o.count))
	if !dec.plain {
		d.remember(first)
	}
}

func (d *decider) request(dec *decision, s *stream, first ref) client.Request {
	var many []client.StreamEvent
	var plain []client.Event
	for i := range d.ids.decides(first) {
		e := d.ids.event(first+ref(i), dec.tags()...)
		many = append(many, client.StreamEvent{Stream: s.name, Event: e})
		e.Metadata, e.Tags = made(json.Marshal(map[string]any{"$tags": e.Tags})), nil
		plain = append(plain, e)
	}
	if dec.plain {
		return made(client.AppendRequest(s.name, anyVersion, plain...))
	}
	var required []client.Requirement
	for _, c := range dec.checks {
		required = append(required, c)
	}
	for _, c := range dec.conditions {
		required = append(required, c)
	}
	return client.ManyRequest(made(client.ManyBody(many, required...)))
}

// judge says what one attempt is known to have done, like judgeWrite.
func (dec *decision) judge(s *stream, a *answer, err error) (v verdict) {
	if dec.plain {
		return judgeWrite(a, err, http.StatusCreated, s.name)
	}
	dec.told, dec.broken, v = judgeMany(a, err)
	return dec.ofOneStream(v)
}

// ofOneStream makes an answer odd that names other streams than the one that was written to.
func (dec *decision) ofOneStream(v verdict) verdict {
	if n := len(dec.told.Streams); v.outcome == done && n != 1 {
		v = verdict{outcome: pending, odd: fmt.Sprintf("the answer names %d streams", n)}
	}
	return v
}

// again sends a decision that was acknowledged once more. The answer must be the same, though its
// own events match its conditions now.
func (d *decider) again(ctx context.Context) {
	first := d.recent[d.rng.IntN(len(d.recent))]
	o := d.journal.ops[first.operation()]
	retry := *o.decision
	switch v, _ := d.send(ctx, &retry, o.stream, first); {
	case v.outcome == pending || v.outcome == refused && v.odd == "":
		d.wander()
	case v.outcome != done || v.number != o.number || !retry.told.Repeated || retry.told.Position != o.decision.told.Position:
		d.find.add(kindIdempotence, "%s; sent again: %+v, %s", d.ids.describe(first, o), v, &retry)
	default:
		d.count.add(ofDecisions, "sentAgain", 1)
	}
}
