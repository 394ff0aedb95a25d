package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/event"
)

// tailing is the workload tail: every worker reads the same stream, or the log, from
// its start, one page after the other, as a subscriber does that catches up.
func tailing(o *options) *workload {
	name := cmp.Or(o.stream, o.prefix+"-tail")
	operation := func(int, int) operation {
		if o.grpc {
			return &catchUp{follow: follow{o: o, stream: name}}
		}
		start := "0"
		if name == event.AllStream {
			start = strings.Repeat("0", 32)
		}
		t := &tailOp{o: o, all: name == event.AllStream, req: o.request("GET", "Accept: "+typeAtom)}
		t.first = "/streams/" + inPath(name) + "/" + start + "/forward/" + strconv.Itoa(o.page)
		t.req.keep = true
		return t
	}
	nothing := fmt.Errorf("nothing to read in %s: write it with --prepare", name)
	return &workload{
		name: "tail", operation: operation,
		setup: func(ctx context.Context, s *session) error {
			switch {
			case o.prepare && event.IsSystemStream(name):
				return fmt.Errorf("--prepare cannot write to %s: use fill", name)
			case o.prepare:
				return prepare(ctx, s, layout{prefix: o.prefix, streams: 1, events: o.streamEvents}, name)
			case o.grpc: // Then a stream that is not there ends at once.
				return nil
			}
			return o.control(func(c *client.Client) error {
				_, err := c.Read(ctx, name, client.Reading{Count: 1})
				if errors.Is(err, client.ErrNotFound) {
					return nothing
				}
				return err
			})
		},
		finish: func(r *result) error {
			if r.Operations == 0 && r.ErrorTotal == 0 {
				return nothing
			}
			return nil
		},
	}
}

// tailOp reads one page after the other.
type tailOp struct {
	o     *options
	all   bool // $all
	first string
	next  string // the link "previous" of the last page; "" at the start
	done  bool

	req  request
	resp response
}

func (t *tailOp) begin() { t.next, t.done = "", false }

func (t *tailOp) do(ctx context.Context, c *sender) (outcome, error) {
	if t.done {
		if !t.o.repeat {
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
	page := t.resp.body.Bytes()
	entries := int64(countEntries(page))
	head := headOf(page)
	next := strings.TrimPrefix(head.link("previous"), c.prefix)
	first := t.next == ""
	// $all never says that it is at its head; its last page is an empty one.
	t.done = next == "" || next == t.next || head.HeadOfStream || entries == 0 && t.all
	t.next = next
	// An empty last page counts as no work, unless there is an earlier page to go back to.
	if entries == 0 && t.done && (first || !t.o.repeat) {
		return outcome{}, errFinished
	}
	return outcome{events: entries, bytes: t.resp.length}, nil
}

type subscriber = grpc.ServerStreamingClient[streams.ReadResp]

func trailerOf(call subscriber) metadata.MD {
	if call == nil {
		return nil
	}
	return call.Trailer()
}

// follow is a subscription to a stream, or to the log, from its start.
type follow struct {
	o      *options
	stream string
	stay   *stay
	call   subscriber
}

// open subscribes, and waits until the server has confirmed it.
func (f *follow) open(ctx context.Context, c *sender) error {
	req := newRead(f.stream, 0)
	req.Options.CountOption = &streams.ReadReq_Options_Subscription{Subscription: &streams.ReadReq_Options_SubscriptionOptions{}}
	if f.stream == event.AllStream {
		req.Options.StreamOption = &streams.ReadReq_Options_All{All: &streams.ReadReq_Options_AllOptions{
			AllOption: &streams.ReadReq_Options_AllOptions_Start{Start: &shared.Empty{}},
		}}
	} else {
		req.Options.GetStream().RevisionOption = &streams.ReadReq_Options_StreamOptions_Start{Start: &shared.Empty{}}
	}
	return c.call(ctx, func(client streams.StreamsClient) (metadata.MD, error) {
		f.stay.end()
		f.stay = newStay(ctx, f.o.timeout)
		err := f.stay.within(func() (err error) {
			if f.call, err = client.Read(f.stay.ctx, req); err == nil {
				var answer *streams.ReadResp
				if answer, err = f.call.Recv(); err == nil && answer.GetConfirmation() == nil {
					err = fmt.Errorf("%w: a subscription that is not confirmed", errUnasked)
				}
			}
			return err
		})
		if err != nil {
			f.stay.end()
			return trailerOf(f.call), err
		}
		return nil, nil
	})
}

// receive calls take with every answer until it returns false.
func (f *follow) receive(ctx context.Context, take func(*streams.ReadResp) bool) error {
	err := f.stay.within(func() error {
		for {
			answer, err := f.call.Recv()
			if err != nil || !take(answer) {
				return err
			}
		}
	})
	if err == nil {
		return nil
	}
	f.stay.end()
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return callFailure(ctx, err)
}

// catchUp is tail over gRPC: a subscription until it has caught up. An operation is as many
// events as a page has.
type catchUp struct {
	follow
	first bool // nothing was read yet
	done  bool
}

func (t *catchUp) begin() {
	t.stay.end()
	t.stay, t.first, t.done = nil, true, false
}

// close gives the subscription up. The session does, at its end.
func (t *catchUp) close() { t.stay.end() }

func (t *catchUp) do(ctx context.Context, c *sender) (out outcome, err error) {
	if t.done {
		if !t.o.repeat {
			return outcome{}, errFinished
		}
		t.begin()
	}
	if t.stay.ended() {
		if err := t.open(ctx, c); err != nil {
			return outcome{}, err
		}
	}
	err = t.receive(ctx, func(answer *streams.ReadResp) bool {
		out.count(answer)
		t.done = answer.GetCaughtUp() != nil
		return !t.done && out.events < int64(t.o.page)
	})
	if err != nil {
		t.begin() // The next operation starts again.
		return outcome{}, err
	}
	if out.events == 0 && (t.first || !t.o.repeat) {
		return outcome{}, errFinished
	}
	t.first = false
	return out, nil
}
