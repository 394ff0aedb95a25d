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
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const longHelp = `Measure a node, ours or another that speaks the same HTTP interface, or with --grpc
the same gRPC services.

Each sub-command is a workload. It runs until --duration is over, or --count
operations are begun, or the interrupt signal comes; the results are those up to
then. While it runs, standard error gets a line every second. At the end standard
output gets a table and, with --json, a document with the same metrics.

The table has one row; a mixed workload has one for each part before it:

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
with the driver; so the bare server, "bare" and "compare", is the ceiling to
hold results against, not the metrics of another machine.

visible alone has other times: p50 ms .. max ms are those from the answer to an append
until an event can be read at every node that --node names. Appends of the further
workers have a row of their own.

Redirects (307, 308) are followed with method, headers and body. A worker that was
redirected to another node stays there, as a client of a cluster stays with the leader.

Names and numbers are fixed: reads expect the streams <prefix>-000001 to
<prefix>-<streams> with --events-per-stream events each, as --prepare or fill writes
them. Appends go to <prefix>-append-000001 and on, batches to <prefix>-batch-000001
and on, tail reads <prefix>-tail unless --stream names another. subscription and visible
write a new stream with each run.

With --grpc the workloads append, append-batch, read-event, read-page, tail, visible and mixed
make the calls of the official clients, on the same port and with the same output, so that one
compares them with those over HTTP:

  append        a call of Append for each event
  append-batch  batches within one call of BatchAppend that each worker keeps open
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
	name, short string
	long        string            // what it writes, if that needs saying
	flags       string            // names, out of workloadFlags
	usages      map[string]string // of flags that mean something else here
	defaults    map[string]string // of flags that have others elsewhere
	make        func(o *options) (workload, error)
}

// writesTo says what an appending workload leaves in the node.
func writesTo(streams string) string {
	return fmt.Sprintf(`It writes as many events as the node takes until --duration is over, or --count of them,
into the streams <prefix>-%[1]s-000001 to <prefix>-%[1]s-<streams> of that node: with the
defaults %[2]d streams, from bench-%[1]s-000001 on. The events stay there.

With --server-pid, the id of the node's process on this machine, the results also say how much
processor time the node took, for each operation and each event.

`, streams, defaultOptions().streams)
}

func kinds() []*kind {
	const layout = "streams events-per-stream prepare size batch "
	const rpc = " grpc connections"
	sizes := map[string]string{"size": "bytes of JSON data of each event that --prepare or the workload writes"}
	read := func(k readKind) func(o *options) (workload, error) {
		return func(o *options) (workload, error) { return &reading{o: o, kind: k}, nil }
	}
	return []*kind{
		{
			name: "append", short: "Append single events", flags: "streams size expected-version-checked" + rpc,
			long: writesTo("append"),
			make: func(o *options) (workload, error) { return &appending{o: o}, nil },
		},
		{
			name: "append-batch", short: "Append several events with each request", flags: "streams size expected-version-checked batch" + rpc,
			long: writesTo("batch"),
			make: func(o *options) (workload, error) { return &appending{o: o, batch: o.batch}, nil },
		},
		{name: "read-event", short: "Read single events, chosen at random", flags: layout + rpc, usages: sizes, make: read(readEvent)},
		{name: "read-page", short: "Read the newest page of streams, with bodies", flags: layout + "page" + rpc, usages: sizes, make: read(readPage)},
		{
			name: "not-modified", short: "Ask whether the head of streams has changed, which it has not",
			flags: layout, usages: sizes, make: read(notModified),
		},
		{
			name: "tail", short: "Read a stream or $all from its start, page by page with bodies",
			flags:    "size batch page stream stream-events prepare repeat" + rpc,
			usages:   map[string]string{"prepare": "write the stream first; what is there already stays"},
			defaults: map[string]string{"page": "1000", "workers": "1", "warmup": "0s"},
			make:     func(o *options) (workload, error) { return &tailing{o}, nil },
		},
		{
			name: "visible", short: "Append an event and wait until every node of --node shows it; further workers append meanwhile",
			flags:    "streams size pause" + rpc,
			defaults: map[string]string{"workers": "1"},
			make:     func(o *options) (workload, error) { return &watching{o: o}, nil },
		},
		{
			name: "mixed", short: "Do several of the others, by weight", flags: layout + "expected-version-checked page mix" + rpc, usages: sizes,
			make: func(o *options) (workload, error) { return newMixing(o) },
		},
	}
}

// workloadFlags are those that one or the other workload has.
func workloadFlags(o *options) *pflag.FlagSet {
	f := pflag.NewFlagSet("workloads", pflag.ContinueOnError)
	f.IntVar(&o.streams, "streams", o.streams, "number of streams among which to choose")
	f.IntVar(&o.size, "size", o.size, "bytes of JSON data of each event")
	f.IntVar(&o.batch, "batch", o.batch, "events of one request")
	f.BoolVar(&o.checked, "expected-version-checked", false, "give each stream to one worker, which sends the version it knows")
	f.Int64Var(&o.eventsPerStream, "events-per-stream", o.eventsPerStream, "events that each stream has")
	f.BoolVar(&o.prepare, "prepare", false, "write what is to be read first; what is there already stays")
	f.IntVar(&o.page, "page", o.page, "events of one page")
	f.StringVar(&o.stream, "stream", "", "stream to read, $all for the log (default <prefix>-tail)")
	f.Int64Var(&o.streamEvents, "stream-events", o.streamEvents, "events that --prepare gives the stream")
	f.BoolVar(&o.repeat, "repeat", false, "begin again at the end, until the time is over")
	f.DurationVar(&o.pause, "pause", o.pause, "how long to wait after an event before the next is appended")
	f.StringVar(&o.mix, "mix", o.mix, "weights of the workloads: append, append-batch, read-event, read-page, not-modified")
	f.BoolVar(&o.grpc, "grpc", false, "make the calls of the official gRPC clients instead of HTTP requests")
	f.IntVar(&o.connections, "connections", 0, "with --grpc: connections that the workers share, 0 for one for each")
	return f
}

// commonFlags are those of everything that runs against a node.
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

func runFlags(f *pflag.FlagSet, o *options) {
	commonFlags(f, o)
	f.DurationVar(&o.duration, "duration", o.duration, "how long to measure")
	f.Int64Var(&o.count, "count", 0, "how many operations to do at most, 0 for any number; --duration holds as well")
	f.DurationVar(&o.warmup, "warmup", o.warmup, "how long to run before measuring")
	f.Float64Var(&o.rate, "rate", 0, "operations a second in all, whether or not answers keep up; 0 for as many as possible")
	f.IntVar(&o.rounds, "rounds", o.rounds, "rounds of a comparison with the bare server")
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
	cmd.AddCommand(compareCommand(), subscriptionCommand(), fillCommand(), limitCommand(), bareCommand())
	for _, sub := range cmd.Commands() {
		// An error of a run does not call for an explanation of the flags.
		sub.SilenceUsage = true
	}
	return cmd
}

func workloadCommand(k *kind) *cobra.Command {
	o := defaultOptions()
	cmd := &cobra.Command{
		Use: k.name, Short: k.short, Args: cobra.NoArgs,
		Long: k.short + ".\n\n" + k.long + "The help of the command above explains the output and the names of streams.",
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, k, &o) },
	}
	runFlags(cmd.Flags(), &o)
	all := workloadFlags(&o)
	for _, name := range strings.Fields(k.flags) {
		flag := all.Lookup(name)
		flag.Usage = cmp.Or(k.usages[name], flag.Usage)
		cmd.Flags().AddFlag(flag)
	}
	cmd.Flags().BoolVar(&o.bare, "bare", false, "compare with the bare server, as the command compare does")
	k.setDefaults(cmd.Flags())
	return cmd
}

// setDefaults gives flags that were not given the defaults of the workload.
func (k *kind) setDefaults(flags *pflag.FlagSet) {
	for name, value := range k.defaults {
		if f := flags.Lookup(name); !f.Changed {
			f.DefValue = value
			cobra.CheckErr(f.Value.Set(value))
		}
	}
}

// compareCommand takes the flags of all workloads, because which of them matter shows only with
// --workload.
func compareCommand() *cobra.Command {
	o := defaultOptions()
	var name string
	var names []string
	byName := map[string]*kind{}
	for _, k := range kinds() {
		names = append(names, k.name)
		byName[k.name] = k
	}
	cmd := &cobra.Command{
		Use: "compare", Short: "Run a workload alternately against the node and a bare server", Args: cobra.NoArgs,
		Long: `Run a workload alternately against the node and a bare HTTP server, which is started
as a child process for the time, in several rounds. The table has a row for each
round and one of medians; ratio is operations a second of the node to those of the
bare server. Every run takes --warmup and --duration.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k := byName[name]
			if k == nil {
				return &UsageError{fmt.Errorf("--workload %q is none of %s", name, strings.Join(names, ", "))}
			}
			k.setDefaults(cmd.Flags())
			o.bare = true
			return run(cmd, k, &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "workload", "append", "one of "+strings.Join(names, ", "))
	runFlags(f, &o)
	workloadFlags(&o).VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "grpc" && flag.Name != "connections" { // The bare server has no gRPC.
			f.AddFlag(flag)
		}
	})
	return cmd
}

func fillCommand() *cobra.Command {
	o := defaultOptions()
	o.streams = 100_000
	cmd := &cobra.Command{
		Use: "fill", Short: "Write a database of known content, as fast as possible", Args: cobra.NoArgs,
		Long: `Write --events events evenly over the streams <prefix>-000001 to <prefix>-<streams>,
a batch to each stream and then the next batch to each. Names and event ids are fixed:
running it again, also after an interrupt and with another --batch, writes only what is
missing. A batch that a node did not take is sent again, up to twelve times.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runFill(cmd, &o) },
	}
	f := cmd.Flags()
	commonFlags(f, &o)
	f.Int64Var(&o.events, "events", o.events, "events to write, in all streams together")
	f.IntVar(&o.streams, "streams", o.streams, "number of streams")
	f.IntVar(&o.size, "size", o.size, "bytes of JSON data of each event")
	f.IntVar(&o.batch, "batch", o.batch, "events of one request")
	return cmd
}

// untilInterrupt returns a context that Ctrl-C and SIGTERM end.
func untilInterrupt(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
}

func run(cmd *cobra.Command, k *kind, o *options) error {
	if err := o.validate(); err != nil {
		return &UsageError{err}
	}
	if o.bare {
		ctx, stop := untilInterrupt(cmd)
		defer stop()
		// The path to the command bare, without the name of the program.
		path := strings.Fields(cmd.Parent().CommandPath())[1:]
		c, err := compare(ctx, k, o, append(path, "bare"), cmd.ErrOrStderr())
		if err != nil {
			return interruptible(err)
		}
		return present(cmd, o, c)
	}
	work, err := k.make(o)
	if err != nil {
		return &UsageError{err}
	}
	return runSession(cmd, o, k.name, work, o.duration)
}

func runFill(cmd *cobra.Command, o *options) error {
	o.warmup, o.eventsPerStream = 0, 1
	if err := o.validate(); err != nil {
		return &UsageError{err}
	}
	o.workers = min(o.workers, o.streams)
	work := &filling{o: o, l: layout{prefix: o.prefix, streams: o.streams, events: o.events}}
	return runSession(cmd, o, "fill", work, maxFill)
}

// maxFill bounds the time that fill may take.
const maxFill = 7 * 24 * time.Hour

func runSession(cmd *cobra.Command, o *options, name string, work workload, duration time.Duration) error {
	ctx, stop := untilInterrupt(cmd)
	defer stop()
	s, err := openSession(ctx, o, name, work, cmd.ErrOrStderr())
	if err != nil {
		return interruptible(err)
	}
	defer s.close()
	r, err := s.measure(ctx, duration, o.warmup, o.count)
	if r == nil {
		return err
	}
	return errors.Join(err, present(cmd, o, r), r.useless())
}

// present writes a result where the flags say: the table not where the JSON goes.
func present(cmd *cobra.Command, o *options, result interface{ table() string }) error {
	to := cmd.OutOrStdout()
	if o.jsonPath == "-" {
		to = cmd.ErrOrStderr()
	}
	_, err := io.WriteString(to, result.table())
	return errors.Join(err, writeJSON(o.jsonPath, cmd.OutOrStdout(), result))
}

// interruptible puts an interrupt before there was anything to measure in plain words.
func interruptible(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted before there were results")
	}
	return err
}
