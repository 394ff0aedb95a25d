package subscription

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// trial drives a core by commands. What a command gives stands after an arrow: its own
// result, and then the effects. Events have their number as their id, and consumers a name.
type trial struct {
	t         *testing.T
	c         core
	now       time.Time
	consumers map[string]*consumer
	parking   []*message
	trim      int64
}

func newTrial(t *testing.T, edit func(*Settings)) *trial {
	s := DefaultSettings()
	s.CheckpointAfter, s.MinCheckpointCount, s.MaxCheckpointCount = 0, 1, 1000
	if edit != nil {
		edit(&s)
	}
	l := &trial{t: t, now: time.Unix(1_000_000, 0), consumers: map[string]*consumer{}}
	l.c = newCore(&s, l.now)
	l.c.strategy = newStrategy(&l.c, func() string { return event.CorrelationMember }, func(e *event.Resolved) *event.Resolved { return e })
	l.c.load(-1, 0, -1, l.now)
	return l
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func idOf(n int64) event.ID { return event.ID{15: byte(n), 14: byte(n >> 8)} }

func idsOf(texts []string) (ids []event.ID) {
	for _, text := range texts {
		ids = append(ids, idOf(number(text)))
	}
	return ids
}

// page returns the events "2-4", or "2=x" with the text x as their correlation.
func page(texts []string) (b batch) {
	for _, text := range texts {
		if text == "end" {
			b.end = true
			continue
		}
		numbers, correlation, _ := strings.Cut(text, "=")
		first, last, isRange := strings.Cut(numbers, "-")
		if !isRange {
			last = first
		}
		for n := number(first); n <= number(last); n++ {
			r := event.Record{Stream: "s", Number: n, ID: idOf(n), Metadata: []byte(`{"$correlationId":"` + correlation + `"}`)}
			b.events = append(b.events, event.Resolved{Record: r})
			b.next = n + 1
		}
	}
	b.known, b.passed = b.next-1, -1
	return b
}

func shown(all []Message) (text string) {
	for _, m := range all {
		text += " " + strconv.FormatInt(m.Event.Number, 10)
		if m.Retries > 0 {
			text += "/" + strconv.Itoa(m.Retries)
		}
	}
	return text
}

// do does one command, and returns what it gives.
func (l *trial) do(command string, args []string) (out string) {
	c := &l.c
	switch command {
	case "read":
		b := page(args)
		c.add(&b, func(r *event.Record) int64 { return r.Number }, 0)
	case "twice": // an event of a number with the id of another
		b := page(args[:1])
		b.events[0].ID = idOf(number(args[1]))
		c.add(&b, func(r *event.Record) int64 { return r.Number }, 0)
	case "arrive":
		c.arrive()
	case "gone":
		c.end()
	case "next":
		out = [...]string{" page", " room", " events", " end"}[c.errand()]
	case "give":
		out = shown(c.give(nil, int(number(args[0])), l.now))
	case "ack":
		c.ack(idsOf(args), l.now)
	case "nack":
		action, after, isGiven := strings.Cut(args[0], "+")
		var delay *time.Duration
		if isGiven {
			delay = new(duration(after))
		}
		c.nack(idsOf(args[1:]), map[string]Action{"retry": Retry, "park": Park, "skip": Skip, "stop": Stop}[action], "why", delay, l.now)
	case "pass":
		l.now = l.now.Add(duration(args[0]))
		c.tick(l.now)
	case "late": // time passes, and no alarm rings
		l.now = l.now.Add(duration(args[0]))
	case "pause":
		c.pause(&Pause{}, l.now)
	case "resume":
		c.pause(nil, l.now)
	case "status":
		out = " " + c.status()
	case "parked":
		c.parked(l.parking, args[0] == "ok", l.now)
	case "written": // the checkpoint, and what was answered since counts for the next
		c.checkpointed(number(args[0]), number(args[0])+1, l.now)
	case "trimmed":
		c.copied.trimmed(l.trim)
	case "replays":
		for _, text := range args {
			c.addReplays([]replayed{{number: number(text), event: page([]string{text}).events[0]}}, 0)
		}
	case "join":
		to := &consumer{most: int(number(args[1])), latencies: new(latencies)}
		l.consumers[args[0]] = to
		c.join(to)
	case "leave":
		c.leave(l.consumers[args[0]], l.now)
	case "receive":
		to := l.consumers[args[0]]
		for _, m := range to.unread {
			out += shown([]Message{m.handed()})
		}
		to.unread = nil
	case "alarm":
		if at := c.alarm(); !at.IsZero() {
			out = " +" + at.Sub(l.now).String()
		}
	case "exact":
		if at := c.exactAlarm(); !at.IsZero() {
			out = " +" + at.Sub(l.now).String()
		}
	case "lists":
		for _, of := range []struct {
			name string
			list *list
		}{{"buffer", &c.buffer}, {"retry", &c.retry}, {"replays", &c.replays}, {"out", &c.out}, {"parking", &c.parking.list}, {"unanswered", &c.unanswered}} {
			if of.list.n > 0 {
				out += fmt.Sprintf(" %s %d", of.name, of.list.n)
			}
		}
		if n := len(c.due); n > 0 {
			out += fmt.Sprint(" delayed ", n)
		}
	case "position":
		n, _ := c.position()
		out = " " + strconv.FormatInt(n, 10)
	case "stalled":
		out = " " + c.stalled(l.now)
	case "reasons":
		for _, m := range l.parking {
			out += fmt.Sprintf(" %q", *m.reason)
		}
	case "map":
		out = fmt.Sprintf(" %t", c.tracked != nil)
	default:
		panic(command)
	}
	return out + l.effects()
}

// effects returns what the core wants to be done now.
func (l *trial) effects() (out string) {
	e := l.c.settle(l.now)
	if len(e.park) > 0 {
		l.parking, out = e.park, out+" park"
		for _, m := range e.park {
			out += " " + strconv.FormatInt(m.number, 10)
		}
	}
	if e.checkpoint {
		n, _ := l.c.position()
		out += fmt.Sprint(" checkpoint ", n)
	}
	if e.trim > 0 {
		l.trim = e.trim
		out += fmt.Sprint(" trim ", e.trim)
	}
	var names []string
	for name, to := range l.consumers {
		if slices.Contains(e.pushed, to) {
			names = append(names, name)
		}
	}
	if slices.Sort(names); len(names) > 0 {
		out += " push " + strings.Join(names, " ")
	}
	l.verify()
	return out
}

// verify looks whether each message is where its state says, and that once.
func (l *trial) verify() {
	c := &l.c
	seen := map[*message]bool{}
	for _, of := range []*list{&c.buffer, &c.retry, &c.replays, &c.out, &c.parking.list} {
		n := 0
		for m := of.head; m != nil; m = of.next(m) {
			if seen[m] || c.listOf(m) != of || m.state != buffered && c.tracked[m.id] != m {
				l.t.Errorf("message %d is in a list that its state %d does not say, or in two", m.number, m.state)
			}
			seen[m] = true
			n++
		}
		check.Equal(l.t, n, of.n, "a list of ... counts")
	}
	held := 0
	for _, all := range c.held {
		held += len(all)
	}
	for _, m := range c.due {
		if seen[m] || m.state != delayed || c.tracked[m.id] != m {
			l.t.Errorf("message %d is delayed, and in another list or state %d", m.number, m.state)
		}
		seen[m] = true
		if !m.replayed && c.strategy.bucket(m) >= 0 {
			held--
		}
	}
	check.Equal(l.t, held, 0, "messages that hold others back, without those that are delayed")
	for _, of := range []*list{&c.unanswered, &c.copied.unanswered} {
		for m := of.head; m != nil; m = of.next(m) {
			if next := of.next(m); !seen[m] || next != nil && next.number < m.number {
				l.t.Errorf("message %d without an answer is in no list, or follows a later one", m.number)
			}
		}
	}
	if n := c.unanswered.n + c.copied.unanswered.n; n != len(c.tracked) {
		l.t.Errorf("%d messages have no answer, and %d are tracked", n, len(c.tracked))
	}
}

func TestCore(t *testing.T) {
	type settings = *Settings
	for _, c := range []struct {
		name   string
		edit   func(s settings)
		script string
	}{
		{"in order, each once", nil, `
			read 0-4; give 2 -> 0 1; give 9 -> 2 3 4; give 9 ->`},
		{"a timeout brings a message back before new ones", nil, `
			read 0-2; give 2 -> 0 1; alarm -> +10s; pass 9900ms;
			lists -> buffer 1 out 2 unanswered 2; pass 100ms;
			lists -> buffer 1 retry 2 unanswered 2; alarm ->; give 9 -> 0/1 1/1 2`},
		{"timeout 0 ends at the next tick", func(s settings) { s.MessageTimeout = 0 }, `
			read 0; give 1 -> 0; give 1 ->; pass 0s; give 1 -> 0/1`},
		{"a late answer is ignored until the message is out again, then anyone's counts", nil, `
			read 0; give 1 -> 0; pass 10s; ack 0; lists -> retry 1 unanswered 1; give 1 -> 0/1;
			ack 0; lists ->`},
		{"retries are ordered by number and come first", nil, `
			read 0-5; give 4 -> 0 1 2 3; nack retry 3; nack retry 1; nack retry 2;
			give 5 -> 1/1 2/1 3/1 4 5`},
		{"skip and stop are acknowledgements", nil, `
			read 0-1; give 2 -> 0 1; nack skip 0; nack stop 1; lists ->`},
		{"answers to unknown messages and in any order", nil, `
			read 0-4; give 4 -> 0 1 2 3; ack 9 2 3 3 0; lists -> buffer 1 out 1 unanswered 1;
			position -> 0`},
		{"as often as retries are allowed, then parked", func(s settings) { s.MaxRetryCount = 2 }, `
			read 0-1; give 1 -> 0; nack retry 0; give 1 -> 0/1; pass 10s; give 1 -> 0/2;
			nack retry 0 -> park 0; reasons -> "Reached retry count of 2"; give 9 -> 1; parked ok;
			lists -> out 1 unanswered 1`},
		{"one batch is parked at a time, and holds the checkpoint", nil, `
			read 0-3; give 4 -> 0 1 2 3; nack park 1 -> park 1;
			reasons -> "Client explicitly NAK'ed message.\nwhy"; nack park 0 3; ack 2;
			position -> -1; parked ok -> park 0 3; parked ok; position -> 3`},
		{"what cannot be parked comes again as it was", nil, `
			read 0-1; give 2 -> 0 1; nack park 0 1 -> park 0 1; parked failed; give 9 -> 0 1;
			lists -> out 2 unanswered 2`},
		{"two events of one id: the second is not tracked", nil, `
			read 0; twice 1 0; read 2; give 9 -> 0 1 2; lists -> out 2 unanswered 2; nack retry 0;
			give 9 -> 0/1; ack 0 2; lists ->`},
		{"the checkpoint lies before the oldest message without an answer", nil, `
			position -> -1; read 0-3; position -> -1; give 3 -> 0 1 2; ack 1; position -> -1;
			ack 0; position -> 1; nack retry 2; position -> 1; give 1 -> 2/1; ack 2; position -> 2;
			give 1 -> 3; ack 3; position -> 3`},
		{"numbers without an event count for the checkpoint", nil, `
			read 5 9; position -> -1; give 1 -> 5; ack 5; position -> 5; give 1 -> 9;
			position -> 5; ack 9; position -> 9`},
		{"checkpoints by count, one at a time, and another for what came meanwhile", func(s settings) { s.MaxCheckpointCount = 2 }, `
			read 0-9; give 9 -> 0 1 2 3 4 5 6 7 8; ack 0; ack 1 -> checkpoint 1; ack 2 3 4;
			pass 1h; written 1 -> checkpoint 4; written 4; give 9 -> 5/1 6/1 7/1 8/1 9;
			ack 5 6 -> checkpoint 6`},
		{"checkpoints by time once enough was answered", func(s settings) {
			s.CheckpointAfter, s.MinCheckpointCount, s.MessageTimeout = time.Second, 3, time.Hour
		}, `
			read 0-9; give 9 -> 0 1 2 3 4 5 6 7 8; ack 0 1; pass 5s; ack 2; alarm -> +-4s;
			pass 0s -> checkpoint 2; pass 1h; written 2; alarm ->;
			give 9 -> 3/1 4/1 5/1 6/1 7/1 8/1 9; ack 3 4 5; alarm -> +1s; pass 999ms;
			pass 1ms -> checkpoint 5`},
		{"no checkpoint by time when that is switched off", func(s settings) { s.MessageTimeout = time.Hour }, `
			read 0-9; give 9 -> 0 1 2 3 4 5 6 7 8; ack 0 1 2 3; pass 59m`},
		{"history is read while more than a batch is free, and again when there is room", func(s settings) { s.BufferSize, s.ReadBatchSize = 25, 10 }, `
			next -> page; read 0-9; next -> page; read 10-19; next -> room; give 5 -> 0 1 2 3 4;
			next -> room; give 1 -> 5; next -> page`},
		{"live until the buffer overflows, then read again", func(s settings) { s.BufferSize, s.ReadBatchSize = 5, 2 }, `
			read end; next -> events; arrive; next -> page; read 0-4 end; next -> events; arrive;
			next -> room; give 4 -> 0 1 2 3; next -> page`},
		{"a buffer that holds no batch is filled when it is empty", func(s settings) { s.BufferSize, s.ReadBatchSize = 1, 50 }, `
			next -> page; read 0; next -> room; give 1 -> 0; next -> page`},
		{"nothing can come any more", nil, `
			read 0; gone; next -> end; arrive; next -> end; give 9 -> 0`},
		{"replayed messages come after retries and before new ones, and hold no checkpoint", nil, `
			read 0-2; give 1 -> 0; nack retry 0; replays 7 8; give 9 -> 0/1 7 8 1 2; ack 0 1 2;
			position -> 2; lists -> out 2`},
		{"a message that was copied twice is replayed once", nil, `
			replays 7; replays 7; give 9 -> 7`},
		{"the stream of replays is truncated when all are answered", nil, `
			replays 7 8 9; give 9 -> 7 8 9; ack 9; ack 7; ack 8 -> trim 10; replays 10;
			give 1 -> 10; ack 10; trimmed -> trim 11; trimmed`},
		{"and in between after a hundred", nil, `
			replays 0; give 1 -> 0; ack 0 -> trim 1; trimmed; replays 1 150 151;
			give 9 -> 1 150 151; ack 1 -> trim 150; trimmed`},
		{"consumers get messages in turn, as long as there are slots", nil, `
			join a 2; join b 3; read 0-6 -> push a b; receive a -> 0 2; receive b -> 1 3 4;
			lists -> buffer 2 out 5 unanswered 5; ack 1 -> push b; receive b -> 5; give 9 -> 6`},
		{"to one until it is full", func(s settings) { s.Strategy = DispatchToSingle }, `
			join a 2; join b 2; read 0-2 -> push a b; receive a -> 0 1; receive b -> 2`},
		{"who leaves has its messages tried again at once", nil, `
			join a 5; read 0-2 -> push a; receive a -> 0 1 2; ack 0; leave a; join b 5 -> push b;
			receive b -> 1/1 2/1`},
		{"one that takes nothing keeps its place", nil, `
			join a 2; read 0-2 -> push a; pass 10s -> push a; pass 10s -> push a;
			receive a -> 0/2 1/2; pass 10s -> push a; receive a -> 0/3 1/3`},
		{"pinned to one that is full: later ones pass, and the checkpoint does not", func(s settings) { s.Strategy = PinnedByCorrelation }, `
			join a 1; join b 9; read 0=x -> push a; read 1=y -> push b; read 2=x 3=y 4=y -> push b;
			receive a -> 0; receive b -> 1 3 4; ack 1 3 4; position -> -1; ack 0 -> push a;
			receive a -> 2; position -> 1; ack 2; position -> 4; leave a; read 5=x -> push b`},
		{"a delay that grows, up to a limit", func(s settings) {
			s.RetryDelay, s.RetryBackoff = 100*time.Millisecond, Backoff{Factor: 10, AtMost: 5 * time.Second}
		}, `
			read 0-1; exact ->; give 1 -> 0; nack retry 0; exact -> +100ms; late 99ms; give 1 -> 1;
			lists -> out 1 unanswered 2 delayed 1; ack 1; late 1ms; give 9 -> 0/1; nack retry 0; exact -> +1s;
			pass 1s; lists -> retry 1 unanswered 1; exact ->; give 9 -> 0/2; nack retry 0;
			exact -> +5s; pass 5s; give 9 -> 0/3; pass 10s; exact -> +5s`},
		{"without a limit a minute, or the delay itself", func(s settings) {
			s.RetryDelay, s.RetryBackoff = 50*time.Second, Backoff{Factor: 2}
		}, `
			read 0; give 1 -> 0; nack retry 0; exact -> +50s; pass 50s; give 1 -> 0/1; nack retry 0;
			exact -> +1m0s`},
		{"a nack has a delay of its own", func(s settings) { s.RetryDelay, s.MaxRetryCount = time.Minute, 3 }, `
			read 0; give 1 -> 0; nack retry+5s 0; exact -> +5s; pass 5s; give 1 -> 0/1; nack retry+0s 0;
			give 1 -> 0/2; nack retry 0; exact -> +1m0s; pass 1m; give 1 -> 0/3;
			nack retry+5s 0 -> park 0`},
		{"time-outs wait too, and who leaves has its messages tried again at once", func(s settings) { s.RetryDelay = time.Minute }, `
			join a 5; read 0-1 -> push a; receive a -> 0 1; ack 0; pass 10s; exact -> +1m0s;
			read 2 -> push a; leave a; give 9 -> 2/1; pass 60s; give 9 -> 1/1`},
		{"a delayed message holds the checkpoint, takes no answer and is no stall", nil, `
			read 0-2; give 2 -> 0 1; nack retry+1h 0; ack 0 1; position -> -1; pass 59m; give 1 -> 2;
			ack 2; position -> -1; late 31s; stalled ->; pass 1h; give 1 -> 0/1; ack 0; position -> 2`},
		{"a buffer whose messages are all delayed is not filled", func(s settings) { s.BufferSize, s.ReadBatchSize = 5, 2 }, `
			next -> page; read 0-2; next -> room; give 9 -> 0 1 2; next -> page; nack retry+1s 0 1;
			next -> page; read 3 4; give 9 -> 3 4; nack retry+2s 2 3 4; next -> room; give 9 ->;
			pass 1s; next -> page; lists -> retry 2 unanswered 5 delayed 3`},
		{"a live group whose messages are all delayed is behind", func(s settings) { s.BufferSize, s.ReadBatchSize = 2, 1 }, `
			read 0-1 end; give 2 -> 0 1; nack retry+1s 0 1; arrive; next -> room; status -> Behind;
			pass 1s; next -> page; read 2 end; status -> Live; give 9 -> 0/1 1/1 2`},
		{"without an order later messages pass", nil, `
			join a 9; read 0=x 1=x -> push a; receive a -> 0 1; nack retry+1s 0; read 2=x -> push a;
			receive a -> 2; pass 1s -> push a; receive a -> 0/1`},
		{"pinned: later messages of the bucket wait, others pass", func(s settings) { s.Strategy = PinnedByCorrelation }, `
			join a 9; read 0=x 1=y -> push a; receive a -> 0 1; nack retry+2s 0; ack 1;
			read 2=x 3=y 4=x -> push a; receive a -> 3; pass 1s; lists -> buffer 2 out 1 unanswered 2 delayed 1;
			pass 1s -> push a; receive a -> 0/1 2 4`},
		{"for readers that pull as well, and a reader finds the end", func(s settings) { s.Strategy = PinnedByCorrelation }, `
			read 0=x 1=x 2=y; give 1 -> 0; nack retry+2s 0; give 9 -> 2; give 9 ->; pass 2s; give 9 -> 0/1 1`},
		{"a later one that failed waits for an earlier one, whichever failed first", func(s settings) { s.Strategy = Pinned }, `
			read 0-4; give 9 -> 0 1 2 3 4; nack retry+1s 2; nack retry+5s 1; nack retry+0s 3; nack retry+0s 0;
			give 9 -> 0/1; lists -> out 2 unanswered 5 delayed 3; pass 1s; give 9 ->; pass 4s;
			give 9 -> 1/1 2/1 3/1`},
		{"one that waits to be tried again is held back, too", func(s settings) { s.Strategy = DispatchToSingle }, `
			join a 2; read 0-1 -> push a; receive a -> 0 1; nack retry+1s 1; pass 1s -> push a; pass 0s;
			leave a; lists -> retry 2 unanswered 2; give 1 -> 0/1; nack retry+3s 0; give 1 ->; pass 3s;
			give 9 -> 0/2 1/2`},
		{"a replayed message has no place in the order", func(s settings) { s.Strategy = Pinned }, `
			read 5; replays 3 4; give 1 -> 3; nack retry+1s 3; give 9 -> 4 5; nack retry+5s 5; pass 1s;
			give 9 -> 3/1`},
		{"a pause hands out nothing, takes answers and goes by the clock", func(s settings) { s.RetryDelay = time.Second }, `
			read 0-4; give 3 -> 0 1 2; pause; status -> Paused; give 9 ->; next -> page; ack 0; nack retry 1;
			position -> 0; pass 1s; pass 9s; pass 1s; lists -> buffer 2 retry 2 unanswered 2; give 9 ->;
			stalled ->; resume; give 9 -> 1/1 2/1 3 4; status -> Behind`},
		{"a pause takes back what consumers have not received", nil, `
			join a 2; join b 9; read 0-5 -> push a b; receive a -> 0 2; pause; receive a ->; receive b ->;
			pass 10s; lists -> retry 6 unanswered 6; resume -> push a b; receive a -> 0/1 2/1;
			receive b -> 1 3 4 5`},
		{"a checkpoint at the latest after a while", func(s settings) { s.CheckpointAtLeastEvery, s.MessageTimeout = 1500*time.Millisecond, time.Hour }, `
			read 0-9; give 9 -> 0 1 2 3 4 5 6 7 8; exact ->; ack 1; exact ->; ack 0; exact -> +1.5s;
			late 1s; ack 2; exact -> +500ms; pass 499ms; pass 1ms -> checkpoint 2; exact ->; ack 3;
			late 1s; ack 4; written 2; exact -> +500ms; late 500ms -> checkpoint 4; ack 5; late 1s; written 4; exact -> +500ms; pass 500ms -> checkpoint 5; written 5; exact ->; pass 1h`},
		{"a stall needs unanswered messages and someone who wants more", nil, `
			read 0-1; give 1 -> 0; stalled ->; pass 29s; stalled ->; pass 1s; give 9 -> 0/1 1;
			stalled -> all 2 messages handed out are unanswered; ack 1; stalled ->; pass 1h;
			stalled ->`},
		{"the map of unanswered messages goes when no consumer reads for a while", nil, `
			read 0; give 1 -> 0; ack 0; map -> true; pass 11s; map -> false`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newTrial(t, c.edit)
			for command := range strings.SplitSeq(c.script, ";") {
				command, want, isTold := strings.Cut(command, "->")
				words := strings.Fields(command)
				got := strings.TrimSpace(l.do(words[0], words[1:]))
				if got != strings.TrimSpace(want) && (isTold || got != "") {
					t.Errorf("%s: %s, want %s", words, got, want)
				}
			}
		})
	}
}
