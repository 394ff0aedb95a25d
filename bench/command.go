package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const longHelp = `Measure a node, ours or another that speaks the same HTTP interface, or with --grpc
the same gRPC services.

Each sub-command is a workload. It runs until --duration is over, or --count
operations are begun, or the interrupt signal comes; the results are those up to
then. While it runs, standard error gets a line every second. At the end standard
output gets a table and, with --json, a document with the same metrics.

The table has one row; a workload of several parts has one for each part before it:

  ops       operations that succeeded
  ops/s     the same, a second
  events/s  events written or read, a second
  MB/s      payload in millions of bytes a second: the data of events written,
            the bodies of answers read
  p50 ms .. max ms
            time from sending a request (with --rate: from when it was due) to
            the end of its answer, of operations that succeeded; quantiles are
            within 0.8 %, the maximum is exact
  errors    operations that did not succeed, listed by kind below the table

Below it stands the processor time of the driver and, with --server-pid, of the
servers, an operation and an event. Servers on this machine share its processors
with the driver.

visible alone has other times: p50 ms .. max ms are those from the answer to an append
until an event can be read at every node that --node names. Appends of the further
workers have a row of their own.

Redirects (307, 308) are followed with method, headers and body. A worker that was
redirected to another node stays there, as a client of a cluster stays with the leader.

Names and numbers are fixed: reads expect the streams <prefix>-000001 to
<prefix>-<streams> with --events-per-stream events each, as --prepare or fill writes
them. Appends go to <prefix>-append-000001 and on, with --batch to <prefix>-batch-000001
and on, tail reads <prefix>-tail unless --stream names another. subscription and visible
write a new stream with each run.

With --grpc the workloads append, read-event, read-page, tail and visible make the calls of
the official clients, on the same port and with the same output, so that one compares them
with those over HTTP:

  append        a call of Append for each event, or with --batch batches within one call
                of BatchAppend that each worker keeps open
  read-event, read-page
                a call of Read, forward, of the same events
  tail          a subscription from the start until it has caught up; an operation is --page events
  visible       a subscription to the stream at every node

MB/s are then the data of events read. Appends go to the leader, also when a follower names it.
Each worker has a connection of its own, unless --connections says how many they share: an
official client has one for all its calls. --prepare and the proof of what is there still go
over HTTP.`

// kind is a workload as the command line knows it.
type kind struct {
	name, short, long string
	flags             string            // names, out of workloadFlags
	usages            map[string]string // of flags that mean something else here
	preset            func(o *options)  // gives flags other defaults
	make              func(o *options) (*workload, error)
}

// runs are the flags of everything that is measured for a time.
const runs = "duration count warmup rate "

func kinds() []*kind {
	const layout = runs + "grpc connections streams events-per-stream prepare size batch"
	sizes := map[string]string{
		"size":  "bytes of JSON data of each event that --prepare writes",
		"batch": "events of one request of --prepare",
	}
	return []*kind{
		{
			name: "append", short: "Append single events, or with --batch several with each request",
			flags: runs + "grpc connections streams size batch expected-version-checked to-streams condition",
			long: fmt.Sprintf(`It writes as many events as the node takes until --duration is over, or --count of them,
into the streams <prefix>-append-000001 to <prefix>-append-<streams> of that node: with the
defaults %d streams, from bench-append-000001 on. The events stay there.

With --server-pid, the id of the node's process on this machine, the results also say how much
processor time the node took, for each operation and each event.

`, defaultOptions().streams),
			usages: map[string]string{"batch": "events of one request, 0 for one in the form with headers"},
			preset: func(o *options) { o.batch = 0 },
			make:   func(o *options) (*workload, error) { return appending(o), nil },
		},
		{
			name: "read-event", short: "Read single events, chosen at random", flags: layout, usages: sizes,
			make: func(o *options) (*workload, error) { return reading(o, "read-event"), nil },
		},
		{
			name: "read-page", short: "Read the newest page of streams, with bodies", flags: layout + " page", usages: sizes,
			make: func(o *options) (*workload, error) { return reading(o, "read-page"), nil },
		},
		{
			name: "tail", short: "Read a stream or $all from its start, page by page with bodies",
			flags:  runs + "grpc connections size batch page stream stream-events prepare repeat",
			usages: map[string]string{"prepare": "write the stream first; what is there already stays"},
			preset: func(o *options) { o.page, o.workers, o.warmup, o.streamEvents = 1000, 1, 0, 1_000_000 },
			make:   func(o *options) (*workload, error) { return tailing(o), nil },
		},
		subscriptionKind,
		{
			name: "visible", short: "Append an event and wait until every node of --node shows it; further workers append meanwhile",
			flags:  runs + "grpc connections streams size pause",
			preset: func(o *options) { o.workers, o.batch = 1, 0 },
			make:   func(o *options) (*workload, error) { return watching(o), nil },
		},
		{
			name: "fill", short: "Write a database of known content, as fast as possible", flags: "events streams size batch max-count",
			long: `Write --events events evenly over the streams <prefix>-000001 to <prefix>-<streams>,
a batch to each stream and then the next batch to each. Names and event ids are fixed:
running it again, also after an interrupt and with another --batch, writes only what is
missing. A batch that a node did not take is sent again, up to twelve times. With
--max-count a scavenge may remove the events beyond it.

`,
			preset: func(o *options) { o.streams, o.duration, o.warmup = 100_000, maxFill, 0 },
			make: func(o *options) (*workload, error) {
				o.workers = min(o.workers, o.streams)
				return filling(o, layoutOf(o, o.events), ""), nil
			},
		},
	}
}

// workloadFlags are those that one or the other workload has.
func workloadFlags(o *options) *pflag.FlagSet {
	f := pflag.NewFlagSet("workloads", pflag.ContinueOnError)
	f.DurationVar(&o.duration, "duration", o.duration, "how long to measure")
	f.Int64Var(&o.count, "count", 0, "how many operations to do at most, 0 for any number; --duration holds as well")
	f.DurationVar(&o.warmup, "warmup", o.warmup, "how long to run before measuring")
	f.Float64Var(&o.rate, "rate", 0, "operations a second in all, whether or not answers keep up; 0 for as many as possible")
	f.IntVar(&o.streams, "streams", o.streams, "number of streams among which to choose")
	f.IntVar(&o.size, "size", o.size, "bytes of JSON data of each event")
	f.IntVar(&o.batch, "batch", o.batch, "events of one request")
	f.BoolVar(&o.checked, "expected-version-checked", false, "give each stream to one worker, which sends the version it knows")
	f.IntVar(&o.toStreams, "to-streams", 0, "streams that get an event each with one request to /streams, 0 for requests to one stream")
	f.BoolVar(&o.condition, "condition", false, "write to /streams, unless there is a new event with the tag of the worker")
	f.Int64Var(&o.eventsPerStream, "events-per-stream", o.eventsPerStream, "events that each stream has")
	f.BoolVar(&o.prepare, "prepare", false, "write what is to be read first; what is there already stays")
	f.IntVar(&o.page, "page", o.page, "events of one page")
	f.StringVar(&o.stream, "stream", "", "stream to read, $all for the log (default <prefix>-tail)")
	f.Int64Var(&o.streamEvents, "stream-events", o.streamEvents, "events that --prepare gives the stream")
	f.BoolVar(&o.repeat, "repeat", false, "begin again at the end, until the time is over")
	f.DurationVar(&o.pause, "pause", o.pause, "how long to wait after an event before the next is appended")
	f.Int64Var(&o.events, "events", o.events, "events to write, in all streams together")
	f.Int64Var(&o.maxCount, "max-count", 0, "$maxCount of each stream, 0 for no limit")
	f.BoolVar(&o.grpc, "grpc", false, "make the calls of the official gRPC clients instead of HTTP requests")
	f.IntVar(&o.connections, "connections", 0, "with --grpc: connections that the workers share, 0 for one for each")
	f.IntVar(&o.bufferSize, "buffer-size", 2000, "messages that the group reads ahead")
	f.IntVar(&o.readBatchSize, "read-batch-size", 100, "events that the group reads ahead at once")
	f.IntVar(&o.maxCheckpoint, "max-checkpoint-count", 5000, "events acknowledged that make the group write a checkpoint at once")
	f.BoolVar(&o.defaultSettings, "default-settings", false, "give the group the server's defaults for these three")
	return f
}

// commonFlags are those of all workloads.
func commonFlags(f *pflag.FlagSet, o *options) {
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "base" {
			name = "node" // as it was called once
		}
		return pflag.NormalizedName(name)
	})
	f.StringSliceVar(&o.bases, "node", o.bases, "URL of a node; repeat it or separate by commas, workers take them in turn")
	f.StringVar(&o.user, "user", "", "user name for Basic authentication")
	f.StringVar(&o.password, "password", "", "password for Basic authentication")
	f.StringVar(&o.tlsCA, "tls-ca", "", "file with certificates of authorities to trust")
	f.BoolVar(&o.tlsInsecure, "tls-insecure", false, "trust every certificate")
	f.DurationVar(&o.timeout, "timeout", o.timeout, "how long an answer may take")
	f.IntVar(&o.workers, "workers", o.workers, "connections, each with one request in flight")
	f.Uint64Var(&o.seed, "seed", o.seed, "seed of all choices except event ids, which are always new")
	f.StringVar(&o.prefix, "prefix", o.prefix, "beginning of all stream names")
	f.IntSliceVar(&o.pids, "server-pid", nil, "process whose processor time counts as the server's; may be repeated")
	f.StringVar(&o.jsonPath, "json", "", "file for the results as JSON; - for standard output, the table then goes to standard error")
	f.BoolVar(&o.quiet, "quiet", false, "no progress")
}

// Command returns the command bench with its sub-commands.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a node over HTTP or gRPC",
		Long:  longHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, k := range kinds() {
		cmd.AddCommand(workloadCommand(k))
	}
	return cmd
}

func workloadCommand(k *kind) *cobra.Command {
	o := defaultOptions()
	if k.preset != nil {
		k.preset(&o)
	}
	cmd := &cobra.Command{
		Use: k.name, Short: k.short, Args: cobra.NoArgs,
		Long: k.short + ".\n\n" + k.long + "The help of the command above explains the output and the names of streams.",
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, k, &o) },
		// An error of a run does not call for an explanation of the flags.
		SilenceUsage: true,
	}
	commonFlags(cmd.Flags(), &o)
	all := workloadFlags(&o)
	for _, name := range strings.Fields(k.flags) {
		flag := all.Lookup(name)
		flag.Usage = cmp.Or(k.usages[name], flag.Usage)
		cmd.Flags().AddFlag(flag)
	}
	if k == subscriptionKind {
		for _, name := range []string{"buffer-size", "read-batch-size", "max-checkpoint-count"} {
			cmd.MarkFlagsMutuallyExclusive("default-settings", name)
		}
	}
	return cmd
}

func run(cmd *cobra.Command, k *kind, o *options) (err error) {
	if err := o.validate(); err != nil {
		return &UsageError{err}
	}
	work, err := k.make(o)
	if err != nil {
		return &UsageError{err}
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := openSession(ctx, o, work, cmd.ErrOrStderr())
	if err == nil {
		defer func() { err = errors.Join(err, s.close()) }()
		var r *result
		if r, err = s.measure(ctx); r != nil {
			return errors.Join(err, present(cmd, o, r), r.useless())
		}
	}
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted before there were results")
	}
	return err
}

// present writes a result where the flags say: the table not where the JSON goes.
func present(cmd *cobra.Command, o *options, r *result) error {
	to := cmd.OutOrStdout()
	if o.jsonPath == "-" {
		to = cmd.ErrOrStderr()
	}
	_, err := io.WriteString(to, r.table())
	return errors.Join(err, r.writeJSON(o.jsonPath, cmd.OutOrStdout()))
}
