package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
)

// eventsPerSecond is for how fast a group the stream is long enough, unless its length is given.
const eventsPerSecond = 300_000

// maxStreamEvents bounds the memory in which deliveries are noted.
const maxStreamEvents = 1_000_000_000

func subscriptionCommand() *cobra.Command {
	o := defaultOptions()
	o.workers, o.page, o.batch, o.streamEvents = 4, maxMessages, 500, 0
	o.duration, o.warmup = 3*time.Second, 500*time.Millisecond
	var compared bool
	cmd := &cobra.Command{
		Use: "subscription", Short: "Read the messages of a persistent subscription and acknowledge them", Args: cobra.NoArgs,
		Long: `Write a stream of --stream-events events, create a group on it, and have --workers
competing readers that each read a page of messages with bodies and acknowledge it
with the link that came with it, until all are acknowledged or --duration is over.
Stream and group have new names, <prefix>-subscription-<id>; the group is deleted in
the end, the stream stays. Creating a group takes an operator's --user and --password.

The table has a row for reads that brought messages, for those that brought none
(after which a reader rests for 1 to 50 ms), and for acknowledgements. events/s are
events acknowledged. The line below says how many of the events were delivered at
least once. A group that hands out nothing for 5 seconds while events are missing ends the
run with an error; of a shorter run the line says how long nothing came.

With --compare, runs of --warmup and --duration, each with a new group, alternate with
runs of as many workers that read the same stream as plain feed pages of the same
size, one after the other, each page by one of them. Ratio is events a second
acknowledged by the group's readers to those read from the feed.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSubscription(cmd, &o, compared) },
	}
	f := cmd.Flags()
	runFlags(f, &o)
	f.Lookup("rounds").Usage = "rounds of --compare"
	f.Int64Var(&o.streamEvents, "stream-events", 0, fmt.Sprintf("events of the stream, 0 for %d for each second of warm-up and run", eventsPerSecond))
	f.IntVar(&o.size, "size", o.size, "bytes of JSON data of each event")
	f.IntVar(&o.batch, "batch", o.batch, "events of one request that writes the stream")
	f.IntVar(&o.page, "page", o.page, "messages of one read, at most 100")
	f.IntVar(&o.bufferSize, "buffer-size", 2000, "messages that the group reads ahead")
	f.IntVar(&o.readBatchSize, "read-batch-size", 100, "events that the group reads ahead at once")
	f.IntVar(&o.maxCheckpoint, "max-checkpoint-count", 5000, "events acknowledged that make the group write a checkpoint at once")
	f.BoolVar(&o.defaultSettings, "default-settings", false, "give the group the server's defaults for these three")
	f.BoolVar(&compared, "compare", false, "compare with plain pages of the feed")
	for _, name := range []string{"buffer-size", "read-batch-size", "max-checkpoint-count"} {
		cmd.MarkFlagsMutuallyExclusive("default-settings", name)
	}
	return cmd
}

func runSubscription(cmd *cobra.Command, o *options, compared bool) error {
	if o.streamEvents == 0 {
		o.streamEvents = max(1, int64(eventsPerSecond*(o.warmup+o.duration).Seconds()))
	}
	if err := o.validate(); err != nil {
		return &UsageError{err}
	}
	if o.page > maxMessages {
		return &UsageError{fmt.Errorf("--page %d is more than the %d messages that one read may bring", o.page, maxMessages)}
	}
	if o.streamEvents > maxStreamEvents {
		return &UsageError{fmt.Errorf("--stream-events %d is more than %d", o.streamEvents, maxStreamEvents)}
	}
	if !o.defaultSettings && (o.readBatchSize < 1 || o.bufferSize <= o.readBatchSize) {
		return &UsageError{fmt.Errorf("--buffer-size %d is not more than --read-batch-size %d, or that is not positive", o.bufferSize, o.readBatchSize)}
	}
	ctx, stop := untilInterrupt(cmd)
	defer stop()
	name := o.prefix + "-subscription-" + newIDs().next().String()[:8]
	s, err := openSession(ctx, o, "feed", &paging{o: o, stream: name}, cmd.ErrOrStderr())
	if err != nil {
		return interruptible(err)
	}
	defer s.close()
	if !compared {
		r, err := measureGroup(ctx, o, name, name, cmd.ErrOrStderr())
		if r == nil {
			return interruptible(err)
		}
		return errors.Join(err, present(cmd, o, r), r.useless())
	}
	feed, group, err := alternate(ctx, o.rounds,
		func(int) (*result, error) { return s.measure(ctx, o.duration, o.warmup, o.count) },
		func(round int) (*result, error) {
			return measureGroup(ctx, o, name, name+"-"+strconv.Itoa(round+1), cmd.ErrOrStderr())
		})
	if err != nil {
		return err
	}
	c := &feedComparison{Feed: mediansOf(feed), Group: mediansOf(group), Interrupted: ctx.Err() != nil}
	c.Ratio = ratio(c.Group.EventsPerSecond, c.Feed.EventsPerSecond)
	for i, r := range group {
		c.Rounds = append(c.Rounds, feedRound{Feed: feed[i], Group: r, Ratio: ratio(r.EventsPerSecond, feed[i].EventsPerSecond)})
	}
	return present(cmd, o, c)
}

// measureGroup creates a group, measures its readers and deletes it.
func measureGroup(ctx context.Context, o *options, stream, group string, log io.Writer) (r *result, err error) {
	w := newSubscribing(o, stream, group)
	s, err := openSession(ctx, o, "subscription", w, log)
	if err != nil {
		return nil, err
	}
	defer s.close()
	// An interrupt leaves no group.
	defer func() { err = errors.Join(err, w.remove(context.WithoutCancel(ctx))) }()
	if r, err = s.measure(ctx, o.duration, o.warmup, o.count); r == nil {
		return nil, err
	}
	r.Group = w.metrics(time.Now())
	if r.Operations == 0 && r.Group.Complete && err == nil {
		err = errors.New("the warm-up left no events to measure with: more --stream-events or less --warmup is needed")
	}
	return r, err
}

// paging is what a subscription is compared with: the workers read a stream from its start
// as plain pages, each page by one of them, and begin again at the end.
type paging struct {
	o      *options
	stream string
	read   atomic.Int64 // pages begun by all workers
}

func (w *paging) parts() []string { return []string{"feed"} }

// setup writes the stream.
func (w *paging) setup(ctx context.Context, s *session) error {
	return prepare(ctx, s, &filling{l: layout{prefix: w.o.prefix, streams: 1, events: w.o.streamEvents}, only: w.stream})
}

func (w *paging) operation(int, int) operation {
	p := &pageOp{
		w: w, target: "/streams/" + escapeStream(w.stream) + "/", tail: "/forward/" + strconv.Itoa(w.o.page) + "?embed=body",
		req: w.o.get(typeAtom),
	}
	p.req.keep = true
	return p
}

// pageOp reads the next page that no other worker has read.
type pageOp struct {
	w            *paging
	target, tail string

	req  request
	resp response
}

func (p *pageOp) do(ctx context.Context, c *sender) (outcome, error) {
	total, size := p.w.o.streamEvents, int64(p.w.o.page)
	from := (p.w.read.Add(1) - 1) % ((total + size - 1) / size) * size
	n := min(size, total-from)
	path := append(p.req.path[:0], p.target...)
	path = strconv.AppendInt(path, from, 10)
	p.req.path = append(path, p.tail...)
	if err := c.expect(ctx, &p.req, &p.resp, 200); err != nil {
		return outcome{}, err
	}
	if got := int64(countEntries(p.resp.body)); got != n {
		return outcome{}, fmt.Errorf("%w: a page from %d has %d of %d events", errMalformed, from, got, n)
	}
	return outcome{events: n, bytes: p.resp.length}, nil
}

// feedRound is one run against the feed and one against a group.
type feedRound struct {
	Feed  *result `json:"feed"`
	Group *result `json:"subscription"`
	Ratio float64 `json:"ratio"` // events per second, subscription to feed
}

// feedComparison is what comparing a subscription with feed pages came to.
type feedComparison struct {
	Rounds []feedRound `json:"rounds"`
	Feed   medians     `json:"feedMedians"`
	Group  medians     `json:"subscriptionMedians"`
	// of the medians of events per second, subscription to feed
	Ratio       float64 `json:"ratio"`
	Interrupted bool    `json:"interrupted"`
}

// table writes the comparison for people.
func (c *feedComparison) table() string {
	var rows strings.Builder
	rows.WriteString("\tfeed events/s\tsubscription events/s\tratio\tfeed p50 ms\tread p50 ms\tack p50 ms\tfeed cpu us/event\tsubscription cpu us/event\tempty reads\tredeliveries\terrors\t\n")
	for i, r := range c.Rounds {
		parts := r.Group.Parts
		fmt.Fprintf(&rows, "round %d\t%.0f\t%.0f\t%.3f\t%.3f\t%.3f\t%.3f\t%s\t%s\t%d\t%d\t%d\t\n", i+1, r.Feed.EventsPerSecond, r.Group.EventsPerSecond, r.Ratio,
			r.Feed.LatencyMs.P50, parts[partRead].LatencyMs.P50, parts[partAck].LatencyMs.P50, microseconds(r.Feed.CPU.ServerUsPerEvent),
			microseconds(r.Group.CPU.ServerUsPerEvent), parts[partEmpty].Operations, r.Group.Group.Redelivered, r.Feed.ErrorTotal+r.Group.ErrorTotal)
	}
	fmt.Fprintf(&rows, "median\t%.0f\t%.0f\t%.3f\t\t\t\t%s\t%s\t\t\t\t\n", c.Feed.EventsPerSecond, c.Group.EventsPerSecond, c.Ratio,
		microseconds(c.Feed.ServerUsPerEvent), microseconds(c.Group.ServerUsPerEvent))
	text := fmt.Sprintf("subscription, %d rounds against plain pages of the feed\n\n", len(c.Rounds)) + aligned(rows.String()) + "\n"
	for _, r := range c.Rounds {
		text += r.Group.Group.String() + "\n"
	}
	if c.Interrupted {
		text += onlyWholeRounds
	}
	return text
}
