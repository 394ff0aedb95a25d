package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/annalsdb/annals/event"
)

// newRead is a read that goes forward, as the official clients ask for it.
func newRead() *streams.ReadReq {
	return &streams.ReadReq{Options: &streams.ReadReq_Options{
		ReadDirection: streams.ReadReq_Options_Forwards,
		FilterOption:  &streams.ReadReq_Options_NoFilter{NoFilter: &shared.Empty{}},
		UuidOption:    &streams.ReadReq_Options_UUIDOption{Content: &streams.ReadReq_Options_UUIDOption_Structured{}},
	}}
}

// readCall is read-event and read-page over gRPC: a call of Read for each, of the same events
// as over HTTP.
type readCall struct {
	w     *reading
	rng   *rand.Rand
	count int64
	req   *streams.ReadReq
}

func newReadCall(w *reading, rng *rand.Rand) *readCall {
	r := &readCall{w: w, rng: rng, count: 1, req: newRead()}
	if w.kind == readPage {
		r.count = int64(w.o.page)
	}
	r.req.Options.CountOption = &streams.ReadReq_Options_Count{Count: uint64(r.count)}
	return r
}

func (r *readCall) do(ctx context.Context, c *sender) (outcome, error) {
	l := r.w.layout()
	from := max(0, r.w.o.eventsPerStream-r.count) // The newest page.
	stream := l.stream(1 + r.rng.IntN(l.streams))
	if r.w.kind == readEvent {
		from = r.rng.Int64N(r.w.o.eventsPerStream)
	}
	r.req.Options.StreamOption = &streams.ReadReq_Options_Stream{Stream: &streams.ReadReq_Options_StreamOptions{
		StreamIdentifier: identifier(stream),
		RevisionOption:   &streams.ReadReq_Options_StreamOptions_Revision{Revision: uint64(from)},
	}}
	out := outcome{part: r.w.part}
	err := c.call(ctx, func(client streams.StreamsClient) (metadata.MD, error) {
		ctx, cancel := context.WithTimeout(ctx, r.w.o.timeout)
		defer cancel()
		call, err := client.Read(ctx, r.req)
		for err == nil {
			var answer *streams.ReadResp
			if answer, err = call.Recv(); answer.GetEvent() != nil {
				out.events++
				out.bytes += int64(len(answer.GetEvent().GetEvent().GetData()))
			}
		}
		if err == io.EOF {
			return nil, nil
		}
		return trailerOf(call), err
	})
	if err == nil && out.events == 0 {
		err = fmt.Errorf("%w: no event from %d on of %s", errUnasked, from, stream)
	}
	return out, err
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
	req := newRead()
	req.Options.CountOption = &streams.ReadReq_Options_Subscription{Subscription: &streams.ReadReq_Options_SubscriptionOptions{}}
	if f.stream == event.AllStream {
		req.Options.StreamOption = &streams.ReadReq_Options_All{All: &streams.ReadReq_Options_AllOptions{
			AllOption: &streams.ReadReq_Options_AllOptions_Start{Start: &shared.Empty{}},
		}}
	} else {
		req.Options.StreamOption = &streams.ReadReq_Options_Stream{Stream: &streams.ReadReq_Options_StreamOptions{
			StreamIdentifier: identifier(f.stream),
			RevisionOption:   &streams.ReadReq_Options_StreamOptions_Start{Start: &shared.Empty{}},
		}}
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
	page  int64
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
		if e := answer.GetEvent(); e != nil {
			out.events++
			out.bytes += int64(len(e.GetEvent().GetData()))
		}
		t.done = answer.GetCaughtUp() != nil
		return !t.done && out.events < t.page
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
