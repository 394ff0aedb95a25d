package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc/metadata"

	"github.com/annalsdb/annals/client"
)

// reading is the workloads read-event and read-page.
func reading(o *options, name string) *workload {
	l := layoutOf(o, int64(o.streams)*o.eventsPerStream)
	pages := name == "read-page"
	var perPage int64 // counted once
	newOp := func(worker int) *readOp {
		r := &readOp{o: o, rng: newRand(o, worker, 0), names: inPath(o.prefix), req: o.request("GET", "Accept: "+typeJSON), perPage: perPage}
		if pages {
			r.req = o.request("GET", "Accept: "+typeAtom)
			r.page = "/head/backward/" + strconv.Itoa(o.page) + "?embed=body"
		}
		return r
	}
	return &workload{
		name: name,
		setup: func(ctx context.Context, s *session) error {
			if err := ensureLayout(ctx, s, l); err != nil || o.grpc || !pages {
				return err
			}
			return o.control(func(c *client.Client) error {
				page, err := c.Read(ctx, l.stream(1), client.Reading{Backward: true, Count: o.page})
				if err == nil {
					perPage = int64(len(page.Entries))
				}
				return err
			})
		},
		operation: func(worker, _ int) operation {
			if o.grpc {
				return newReadCall(o, l, newRand(o, worker, 0), pages)
			}
			return newOp(worker)
		},
	}
}

// samples is how many streams setup looks at when it does not write them.
const samples = 16

// ensureLayout writes the layout, with --prepare, or proves on a sample that it is there.
func ensureLayout(ctx context.Context, s *session, l layout) error {
	if s.o.prepare {
		return prepare(ctx, s, l, "")
	}
	rng := newRand(s.o, 0, 200)
	return s.o.control(func(c *client.Client) error {
		for n := range samples {
			i := 1 + rng.IntN(l.streams)
			switch n {
			case 0:
				i = 1
			case 1:
				i = l.streams
			}
			_, err := c.Event(ctx, l.stream(i), l.eventsOf(i)-1)
			if errors.Is(err, client.ErrNotFound) {
				return fmt.Errorf("%w: write what is to be read with --prepare, or with fill and the same --prefix, --streams and number of events", err)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// readOp reads from random streams of the layout.
type readOp struct {
	o       *options
	rng     *rand.Rand
	names   string
	page    string // the end of the path of a page; "": events are read
	perPage int64

	req  request
	resp response
}

func (r *readOp) do(ctx context.Context, c *sender) (outcome, error) {
	p := appendStream(append(r.req.path[:0], "/streams/"...), r.names, 1+r.rng.IntN(r.o.streams))
	out := outcome{events: 1}
	if r.page != "" {
		r.req.path, out.events = append(p, r.page...), r.perPage
	} else {
		r.req.path = strconv.AppendInt(append(p, '/'), r.rng.Int64N(r.o.eventsPerStream), 10)
	}
	err := c.expect(ctx, &r.req, &r.resp, 200)
	out.bytes = r.resp.length
	return out, err
}

// newRead is a read that goes forward from a revision of a stream, as the official clients ask
// for it.
func newRead(stream string, from int64) *streams.ReadReq {
	return &streams.ReadReq{Options: &streams.ReadReq_Options{
		StreamOption: &streams.ReadReq_Options_Stream{Stream: &streams.ReadReq_Options_StreamOptions{
			StreamIdentifier: identifier(stream),
			RevisionOption:   &streams.ReadReq_Options_StreamOptions_Revision{Revision: uint64(from)},
		}},
		ReadDirection: streams.ReadReq_Options_Forwards,
		FilterOption:  &streams.ReadReq_Options_NoFilter{NoFilter: &shared.Empty{}},
		UuidOption:    &streams.ReadReq_Options_UUIDOption{Content: &streams.ReadReq_Options_UUIDOption_Structured{}},
	}}
}

// readCall is read-event and read-page over gRPC: a call of Read for each, of the same events
// as over HTTP.
type readCall struct {
	o     *options
	l     layout
	rng   *rand.Rand
	pages bool
	count int64
}

func newReadCall(o *options, l layout, rng *rand.Rand, pages bool) *readCall {
	r := &readCall{o: o, l: l, rng: rng, pages: pages, count: 1}
	if pages {
		r.count = int64(o.page)
	}
	return r
}

func (r *readCall) do(ctx context.Context, c *sender) (out outcome, err error) {
	from := max(0, r.o.eventsPerStream-r.count) // The newest page.
	stream := r.l.stream(1 + r.rng.IntN(r.l.streams))
	if !r.pages {
		from = r.rng.Int64N(r.o.eventsPerStream)
	}
	req := newRead(stream, from)
	req.Options.CountOption = &streams.ReadReq_Options_Count{Count: uint64(r.count)}
	err = c.call(ctx, func(client streams.StreamsClient) (metadata.MD, error) {
		ctx, cancel := context.WithTimeout(ctx, r.o.timeout)
		defer cancel()
		call, err := client.Read(ctx, req)
		for err == nil {
			var answer *streams.ReadResp
			answer, err = call.Recv()
			out.count(answer)
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

// count takes an answer into account.
func (out *outcome) count(answer *streams.ReadResp) {
	if e := answer.GetEvent(); e != nil {
		out.events++
		out.bytes += int64(len(e.GetEvent().GetData()))
	}
}
