package bench

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func limitCommand() *cobra.Command {
	o := defaultOptions()
	o.streams, o.deleted = 100_000, 2
	cmd := &cobra.Command{
		Use: "limit", Short: "Make about half of the events that fill wrote removable", Args: cobra.NoArgs,
		Long: `Give streams that fill wrote with the same --prefix, --events and --streams $maxCount of half
their events. --deleted of a hundred are deleted instead, every other one for good. Nothing is
removed before a scavenge.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runLimit(cmd, &o) },
	}
	f := cmd.Flags()
	commonFlags(f, &o)
	f.Int64Var(&o.events, "events", o.events, "events that all streams have together")
	f.IntVar(&o.streams, "streams", o.streams, "number of streams")
	f.IntVar(&o.limited, "limited-streams", 0, "number of streams that are limited or deleted, 0 for all")
	f.IntVar(&o.deleted, "deleted", o.deleted, "how many streams of a hundred are deleted")
	return cmd
}

func runLimit(cmd *cobra.Command, o *options) error {
	o.warmup, o.eventsPerStream = 0, 1
	if err := o.validate(); err != nil {
		return &UsageError{err}
	}
	switch {
	case o.events < int64(o.streams):
		return &UsageError{fmt.Errorf("--events %d is less than one for each of --streams %d", o.events, o.streams)}
	case o.limited < 0 || o.limited > o.streams:
		return &UsageError{fmt.Errorf("--limited-streams %d is not between 0 and --streams %d", o.limited, o.streams)}
	case o.deleted < 0 || o.deleted > 99:
		return &UsageError{fmt.Errorf("--deleted %d is not between 0 and 99", o.deleted)}
	}
	if o.limited == 0 {
		o.limited = o.streams
	}
	o.workers = min(o.workers, o.streams)
	return runSession(cmd, o, "limit", &limiting{o}, maxFill)
}

// limiting is the workload that makes about half of the events of a layout removable.
type limiting struct{ o *options }

func (w *limiting) parts() []string { return []string{"limit"} }

func (w *limiting) setup(context.Context, *session) error { return nil }

func (w *limiting) operation(worker, workers int) operation {
	return &limitOp{
		o: w.o, stream: worker + 1, step: workers, auth: basicAuth(w.o.user, w.o.password), names: escapeStream(w.o.prefix),
		keep: max(1, w.o.events/int64(w.o.streams)/2),
	}
}

// limitOp sees to the streams worker+1, worker+1+step, ...
type limitOp struct {
	o            *options
	stream, step int
	auth         []byte
	names        string
	keep         int64 // events of a limited stream that stay

	req  request
	resp response
}

func (l *limitOp) do(ctx context.Context, c *sender) (outcome, error) {
	if l.stream > l.o.limited {
		return outcome{}, errFinished
	}
	l.req.path = appendStream(append(l.req.path[:0], "/streams/"...), l.names, l.stream)
	l.req.head = append(l.req.head[:0], l.auth...)
	l.req.body = nil
	if k := (l.stream - 1) % 100; k < l.o.deleted {
		l.req.method = "DELETE"
		if k%2 == 1 {
			l.req.head = append(l.req.head, "ES-HardDelete: true\r\n"...)
		}
	} else {
		l.req.method = "POST"
		l.req.path = append(l.req.path, "/metadata"...)
		l.req.head = append(l.req.head, "Content-Type: "+typeEvents+"\r\n"...)
		// The same ids with every run: repeated soon, it writes nothing.
		id := fixedID(hashOf("$$"+string(l.req.path)), l.keep)
		l.req.body = fmt.Appendf(nil, `[%s%s","eventType":"$metadata","data":{"$maxCount":%d}}]`, batchHead, id, l.keep)
	}
	err := c.insist(ctx, &l.req, &l.resp)
	switch {
	case err == errCut:
		return outcome{}, err
	case err != nil:
		return outcome{}, &fatalError{err}
	case l.resp.status == 201 || l.resp.status == 204 || l.resp.status == 200:
		l.stream += l.step
		return outcome{events: 1}, nil
	case l.resp.status == 410: // Gone already, by an earlier run.
		l.stream += l.step
		return outcome{}, nil
	}
	return outcome{}, &fatalError{refused(&l.resp)}
}
