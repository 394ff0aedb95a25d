package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/internal/clock"
)

const scavengeHelp = `Measure what a scavenge costs a node that serves, and how fast the scavenge is. Each round
fills streams of its own with --events events evenly, makes about half of them
removable, and measures appends without a scavenge, while one runs for as long as it does, and
without it again.

The streams are <prefix>-000001 to <prefix>-<streams>, in round 2 <prefix>-2-000001 and on.
Each gets $maxCount of half its events; --deleted of a hundred are deleted
instead, every other one for good. With --filled the streams of the first round are there
already, as fill and limit leave them with the same --prefix, --events and --streams.

Appends go to <prefix>-append-000001 and on, for --slice with one writer, for --slice with
--workers, and so on, until each has had --duration, or the scavenge is over. --readers
read single events that stay meanwhile, --read-rate a second in all. The node of the first
--base is scavenged; that takes an operator's --user and --password. Other clients and jobs
of the node are measured as well: there should be none.

The first table has appends a second and latencies before, during, in each phase of, and after the
scavenge. The ratios compare with before: rate is appends a second of --workers. The second
table has the phases: what each went through, and millions of bytes of it a second where it counts
bytes. The whole run counts the bytes of the chunk files that it executed or skipped. With
--server-pid processor time while it ran follows, that of appends and reads included. The median of all
rounds stands at the end. Interrupted, it stops the scavenge.`

// scavengeOptions is what the flags of the command scavenge say beyond those of all.
type scavengeOptions struct {
	*options
	filled    bool
	limited   int // streams that get metadata, 0: all
	deleted   int // of a hundred streams
	threads   int
	threshold int
	throttle  int
	readers   int
	readRate  float64
	slice     time.Duration
	settle    time.Duration
	poll      time.Duration
}

func scavengeCommand() *cobra.Command {
	o := defaultOptions()
	o.events, o.streams, o.rounds = 2_000_000, 100_000, 1
	so := scavengeOptions{
		options: &o, deleted: 2, threads: 1, throttle: 100, readRate: 500,
		slice: 500 * time.Millisecond, settle: 5 * time.Second, poll: 25 * time.Millisecond,
	}
	cmd := &cobra.Command{
		Use: "scavenge", Short: "Measure a scavenge, and appends while it runs", Args: cobra.NoArgs, Long: scavengeHelp,
		RunE: func(cmd *cobra.Command, _ []string) error { return runScavenge(cmd, &so) },
	}
	f := cmd.Flags()
	commonFlags(f, &o)
	f.DurationVar(&o.duration, "duration", o.duration, "how long to measure one writer, and --workers, before and after the scavenge")
	f.DurationVar(&o.warmup, "warmup", o.warmup, "how long to append before measuring")
	f.IntVar(&o.rounds, "rounds", o.rounds, "how often to fill, scavenge and measure")
	f.Int64Var(&o.events, "events", o.events, "events that each round writes, in all streams together")
	f.IntVar(&o.streams, "streams", o.streams, "number of streams of each round")
	f.IntVar(&o.size, "size", o.size, "bytes of JSON data of each event")
	f.IntVar(&o.batch, "batch", o.batch, "events of one request that fills the streams")
	f.BoolVar(&so.filled, "filled", false, "the streams of the first round are there already")
	limitFlags(f, &so)
	f.IntVar(&so.threads, "threads", so.threads, "threads of the scavenge")
	f.IntVar(&so.threshold, "threshold", so.threshold, "threshold of the scavenge")
	f.IntVar(&so.throttle, "throttle", so.throttle, "throttle of the scavenge in percent")
	f.IntVar(&so.readers, "readers", so.readers, "connections that read single events all the time")
	f.Float64Var(&so.readRate, "read-rate", so.readRate, "reads a second of all readers, 0 for as many as possible")
	f.DurationVar(&so.slice, "slice", so.slice, "how long one writer, and --workers, take turns")
	f.DurationVar(&so.settle, "settle", so.settle, "how long to leave the node alone before measuring")
	f.DurationVar(&so.poll, "poll", so.poll, "how often to ask how far the scavenge is")
	return cmd
}

func limitFlags(f *pflag.FlagSet, o *scavengeOptions) {
	f.IntVar(&o.limited, "limited-streams", 0, "number of streams of each round that are limited or deleted, 0 for all")
	f.IntVar(&o.deleted, "deleted", o.deleted, "how many streams of a hundred are deleted")
}

// limitCommand does alone what the command scavenge does before it measures.
func limitCommand() *cobra.Command {
	o := defaultOptions()
	o.streams = 100_000
	so := scavengeOptions{options: &o, deleted: 2}
	cmd := &cobra.Command{
		Use: "limit", Short: "Make about half of the events that fill wrote removable", Args: cobra.NoArgs,
		Long: `Give streams that fill wrote with the same --prefix, --events and --streams $maxCount of half
their events. --deleted of a hundred are deleted instead, every other one for good. Nothing is
removed before a scavenge.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runLimit(cmd, &so) },
	}
	f := cmd.Flags()
	commonFlags(f, &o)
	f.Int64Var(&o.events, "events", o.events, "events that all streams have together")
	f.IntVar(&o.streams, "streams", o.streams, "number of streams")
	limitFlags(f, &so)
	f.Lookup("limited-streams").Usage = "number of streams that are limited or deleted, 0 for all"
	return cmd
}

func runLimit(cmd *cobra.Command, o *scavengeOptions) error {
	o.warmup = 0
	if err := o.validateLimits(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(lifetime(cmd), os.Interrupt, terminate)
	defer stop()
	o.workers = min(o.workers, o.streams)
	work := &limiting{o: o.options, prefix: o.prefix, limited: o.limited, deleted: o.deleted, each: o.eventsPerStream}
	return runSession(ctx, cmd, o.options, "limit", work, maxFill)
}

// validateLimits looks at what limits depend on.
func (o *scavengeOptions) validateLimits() error {
	o.eventsPerStream = 1
	if err := o.options.validate(); err != nil {
		return err
	}
	o.eventsPerStream = o.events / int64(o.streams)
	switch {
	case o.eventsPerStream < 1:
		return fmt.Errorf("--events %d is less than one for each of --streams %d", o.events, o.streams)
	case o.limited < 0 || o.limited > o.streams:
		return fmt.Errorf("--limited-streams %d is not between 0 and --streams %d", o.limited, o.streams)
	case o.deleted < 0 || o.deleted > 99:
		return fmt.Errorf("--deleted %d is not between 0 and 99", o.deleted)
	}
	if o.limited == 0 {
		o.limited = o.streams
	}
	return nil
}

func (o *scavengeOptions) validate() error {
	if err := o.validateLimits(); err != nil {
		return err
	}
	switch {
	case o.readers < 0 || o.readers > maxWorkers:
		return fmt.Errorf("--readers %d is not between 0 and %d", o.readers, maxWorkers)
	case !(o.readRate >= 0 && o.readRate <= 1e9):
		return fmt.Errorf("--read-rate %g is not between 0 and a billion", o.readRate)
	case o.threads < 1:
		return fmt.Errorf("--threads %d is not positive", o.threads)
	case o.throttle < 1 || o.throttle > 100:
		return fmt.Errorf("--throttle %d is not between 1 and 100", o.throttle)
	case o.slice < 10*time.Millisecond || o.slice > time.Hour:
		return fmt.Errorf("--slice %s is not between 10ms and an hour", o.slice)
	case o.poll < time.Millisecond || o.poll > time.Minute:
		return fmt.Errorf("--poll %s is not between 1ms and a minute", o.poll)
	case o.settle < 0 || o.settle > time.Hour:
		return fmt.Errorf("--settle %s is not between zero and an hour", o.settle)
	}
	return nil
}

// query is how the scavenge is asked for.
func (o *scavengeOptions) query() string {
	q := url.Values{"threads": {strconv.Itoa(o.threads)}, "threshold": {strconv.Itoa(o.threshold)}}
	if o.throttle < 100 {
		q.Set("throttlePercent", strconv.Itoa(o.throttle))
	}
	return q.Encode()
}

func runScavenge(cmd *cobra.Command, o *scavengeOptions) error {
	if err := o.validate(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(lifetime(cmd), os.Interrupt, terminate)
	defer stop()
	b := &scavengeBench{o: o, log: cmd.ErrOrStderr()}
	report := &scavengeReport{
		Bases: o.bases, Workers: o.workers, Readers: o.readers, Events: o.events, Streams: o.streams, EventBytes: o.size,
		Threads: o.threads, Threshold: o.threshold, ThrottlePercent: o.throttle,
	}
	if err := b.check(ctx); err != nil {
		return err
	}
	for n := 1; n <= o.rounds; n++ {
		r, err := b.round(ctx, n)
		if ctx.Err() != nil {
			report.Interrupted = true
			break
		}
		if err != nil {
			return err
		}
		report.Rounds = append(report.Rounds, r)
	}
	if len(report.Rounds) == 0 {
		return interruptible(context.Canceled)
	}
	report.conclude()
	return errors.Join(report.table(tableOut(cmd, o.options)), writeJSON(o.jsonPath, cmd.OutOrStdout(), report))
}

// scavengeBench does the rounds.
type scavengeBench struct {
	o   *scavengeOptions
	log io.Writer
}

// say shows progress; a closed standard error does not end the run.
func (b *scavengeBench) say(format string, args ...any) {
	if !b.o.quiet {
		_, _ = fmt.Fprintf(b.log, format+"\n", args...)
	}
}

// prefix begins the names of the streams of a round.
func (b *scavengeBench) prefix(round int) string {
	if round == 1 {
		return b.o.prefix
	}
	return b.o.prefix + "-" + strconv.Itoa(round)
}

// round fills, limits, scavenges, and measures before, meanwhile and afterwards.
func (b *scavengeBench) round(ctx context.Context, n int) (r *scavengeRound, err error) {
	o := *b.o.options
	o.prefix = b.prefix(n)
	limits := &limiting{o: &o, prefix: o.prefix, limited: b.o.limited, deleted: b.o.deleted, each: b.o.eventsPerStream}
	if n > 1 || !b.o.filled {
		fill := &filling{o: &o, l: layout{prefix: o.prefix, streams: o.streams, events: o.events}}
		if err := b.write(ctx, &o, "fill", fill); err != nil {
			return nil, err
		}
		if err := b.write(ctx, &o, "limit", limits); err != nil {
			return nil, err
		}
	}
	m, err := b.openMeter(ctx, limits)
	if err != nil {
		return nil, err
	}
	defer m.close()
	if clock.Sleep(ctx, b.o.settle) != nil {
		return nil, ctx.Err()
	}
	r = &scavengeRound{Round: n, Removable: limits.removable()}
	if r.Before, err = m.forTime(ctx, "before"); err != nil {
		return nil, err
	}
	w, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err = m.during(ctx, w, r); err != nil {
		return nil, err
	}
	if r.After, err = m.forTime(ctx, "after"); err != nil {
		return nil, err
	}
	r.compare()
	return r, nil
}

// write runs a workload that writes something once.
func (b *scavengeBench) write(ctx context.Context, o *options, name string, work workload) error {
	own := *o
	own.workers = min(o.workers, o.streams)
	s, err := newSession(&own, name, work, b.log)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.open(ctx); err != nil {
		return err
	}
	total := newRecorder(1)
	took, err := s.runFor(ctx, maxFill, 0, total)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if n := total.errorTotal(); n > 0 {
		var kinds []string
		for kind, e := range total.errors {
			kinds = append(kinds, fmt.Sprintf("%d %s, for example: %s", e.Count, kind, e.Example))
		}
		return fmt.Errorf("%s: %s", name, strings.Join(kinds, "; "))
	}
	b.say("%s: %d requests in %.1f s", name, total.whole().latency.count, took.Seconds())
	return nil
}
