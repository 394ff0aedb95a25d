package bench

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/event"
)

// tailing is the workload tail: every worker reads the same stream, or the log, from
// its start, one page after the other, as a subscriber does that catches up.
type tailing struct{ o *options }

func (w *tailing) parts() []string { return []string{"tail"} }

// tailStream is the stream that --prepare writes when --stream names none.
func (w *tailing) stream() string {
	if w.o.stream != "" {
		return w.o.stream
	}
	return w.o.prefix + "-tail"
}

func (w *tailing) setup(ctx context.Context, s *session) error {
	name := w.stream()
	if w.o.prepare {
		if event.IsSystemStream(name) {
			return fmt.Errorf("--prepare cannot write to %s: use fill", name)
		}
		return prepare(ctx, s, &filling{l: layout{prefix: w.o.prefix, streams: 1, events: w.o.streamEvents}, only: name})
	}
	op := w.operation(0, 1)
	return withInterrupt(ctx, s, func(ctx context.Context, c *sender) error {
		op.(beginner).begin()
		_, err := op.do(ctx, c)
		if err == errFinished {
			return fmt.Errorf("nothing to read in %s: write it with --prepare", name)
		}
		if err != nil {
			return fmt.Errorf("read the first page of %s: %w", name, err)
		}
		return nil
	})
}

func (w *tailing) operation(int, int) operation {
	if w.o.grpc {
		return &catchUp{follow: follow{o: w.o, stream: w.stream()}, page: int64(w.o.page)}
	}
	t := &tailOp{w: w}
	start := "0"
	if w.stream() == event.AllStream {
		start = strings.Repeat("0", 32)
	}
	t.first = "/streams/" + escapeStream(w.stream()) + "/" + start + "/forward/" + strconv.Itoa(w.o.page)
	t.req = w.o.get(typeAtom)
	t.req.keep = true
	return t
}

// tailOp reads one page after the other.
type tailOp struct {
	w     *tailing
	first string
	next  string // the link "previous" of the last page; "" at the start
	done  bool

	req  request
	resp response
}

func (t *tailOp) begin() { t.next, t.done = "", false }

func (t *tailOp) do(ctx context.Context, c *sender) (outcome, error) {
	if t.done {
		if !t.w.o.repeat {
			return outcome{}, errFinished
		}
		t.begin()
	}
	detail := "?embed=body" // Links do not repeat it.
	if strings.IndexByte(t.next, '?') >= 0 {
		detail = "&embed=body"
	}
	t.req.path = append(append(t.req.path[:0], cmp.Or(t.next, t.first)...), detail...)
	if err := c.expect(ctx, &t.req, &t.resp, 200); err != nil {
		return outcome{}, err
	}
	page := t.resp.body
	entries := int64(countEntries(page))
	next := strings.TrimPrefix(relatedLink(page, "previous"), c.prefix)
	first := t.next == ""
	// $all never says that it is at its head; its last page is an empty one.
	t.done = next == "" || next == t.next || atHead(page) || entries == 0 && t.w.stream() == event.AllStream
	t.next = next
	// An empty last page counts as no work, unless there is an earlier page to go back to.
	if entries == 0 && t.done && (first || !t.w.o.repeat) {
		return outcome{}, errFinished
	}
	return outcome{events: entries, bytes: t.resp.length}, nil
}
