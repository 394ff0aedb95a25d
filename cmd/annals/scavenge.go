package main

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/admin/scavenge"
)

const scavengeHelp = `Remove for good, while a node serves, the events that deletion and metadata hide: events
beyond $maxCount, $maxAge and $tb, deleted streams, replaced metadata.

A scavenge works on the files of one node. Every node of a cluster needs one. The node that
is asked does the work, leader or not. Removed events cannot be brought back.

You must be an administrator or operator of the cluster, unless it runs without
authentication. Set the password in the environment variable ANNALS_PASSWORD: other users
of the machine can read the command line.`

const scavengeStartHelp = `Start a scavenge on a node and follow it to its end.

A run that was stopped, or that a restart interrupted, resumes: it keeps the threshold
that it began with.

Standard error has the progress: on a terminal a bar for each phase, else lines. Standard
output has the result. Ctrl-C ends the following, not the scavenge. When the node does not
answer, the command asks again for as long as --retry-for.

With --all the nodes of the cluster scavenge one after the other, the followers first and
the leader last. The first failure ends it. A node works up to a scavenge point, and takes
one that another node has made if it has not done that yet. So a node may scavenge more
than once with --all, until its point is newer than the command.

Exit codes: 0 success, 1 the run failed or could not be started or followed, 2 bad
arguments, 3 the run was stopped, 130 Ctrl-C ended the following.`

const scavengeStopHelp = `Stop the scavenge that runs on a node, wait until it has stopped, and print its id.

With an ID only that run is stopped. The work of the run stays done, and the next start
resumes where it stopped. Exit code 1 means that no such run was there to stop.`

const scavengeStatusHelp = `Show the progress of the scavenge of a node, or how the last one ended.

A node remembers the last run since its start. All earlier ones are in the stream
$scavenges. The exit code is 0 when the node has answered, even if it knows of no run.
With --watch the command follows a run to its end, with the exit codes of annals scavenge
start: 0 success, 1 failure, 3 stopped, 130 Ctrl-C.`

const scavengeDryRunHelp = `Estimate what a scavenge that starts now would remove on a node. Nothing is changed.

Three tables show the chunk files that would lose events, the streams that would lose
most, and why, and the largest streams that would lose nothing, and why not. Bytes are
estimates. A run rewrites only chunk files whose weight reaches the threshold. Events in
other files stay until a later run.

The node reads everything that no run has read before. This takes long if there is much of
it: without --timeout the command waits for the answer without limit.`

// Exit codes of scavenge start and scavenge status --watch beyond 0 and 1.
const (
	exitStopped  = 3
	exitDetached = 130 // as of a process that Ctrl-C has ended
)

// scavengeFlags are what the commands below scavenge have in common.
type scavengeFlags struct {
	clusterFlags

	interval, retryFor time.Duration // of following
	progress           string
}

func scavengeCommand(stdout, stderr io.Writer) *cobra.Command {
	var f scavengeFlags
	root := group("scavenge", "Remove for good what deletion and metadata hide", scavengeHelp)
	f.add(root.PersistentFlags(), "address of the node", "print JSON in place of text")
	root.PersistentFlags().Lookup("timeout").Usage = "how long to wait for an answer of the node"
	root.AddCommand(
		scavengeStartCommand(&f, stdout, stderr),
		scavengeStopCommand(&f, stdout),
		scavengeStatusCommand(&f, stdout, stderr),
		scavengeDryRunCommand(&f, stdout),
	)
	return root
}

// following adds the flags of commands that follow a run.
func (f *scavengeFlags) following(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&f.interval, "interval", 500*time.Millisecond, "time from one question about the progress to the next")
	flags.DurationVar(&f.retryFor, "retry-for", 2*time.Minute, "how long to ask again when the node does not answer")
	flags.StringVar(&f.progress, "progress", "auto", "how progress is shown: bar, lines, none, or auto, which is a bar on a terminal")
	values(cmd, "progress", progressKinds...)
}

// progressKinds are the values of --progress.
var progressKinds = []string{"auto", "bar", "lines", "none"}

// checkFollowing validates the flags of following.
func (f *scavengeFlags) checkFollowing() error {
	switch {
	case f.interval <= 0:
		return cannot(errors.New("--interval must be above 0"))
	case f.retryFor < 0:
		return cannot(errors.New("--retry-for must not be below 0"))
	}
	return oneOf("progress", f.progress, progressKinds...)
}

// interruptible returns a context that Ctrl-C and SIGTERM end.
func interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
}

// untilInterrupted runs a command without arguments until it ends, or Ctrl-C or SIGTERM does.
func untilInterrupted(run func(ctx context.Context) error) func(*cobra.Command, []string) error {
	return func(*cobra.Command, []string) error {
		ctx, stop := interruptible()
		defer stop()
		return run(ctx)
	}
}

func scavengeStartCommand(f *scavengeFlags, stdout, stderr io.Writer) *cobra.Command {
	var s scavengeStart
	var wait, detach bool
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start a scavenge, and follow it to its end",
		Long:  scavengeStartHelp,
		Example: `  annals scavenge start --node https://node1.example.com:2113 --ca roots
  annals scavenge start --threads 4 --threshold 1000
  annals scavenge start --throttle 25 --detach
  annals scavenge start --all`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.scavengeFlags, s.stdout, s.stderr, s.detach = f, stdout, stderr, detach || !wait
			s.query = url.Values{}
			for _, flag := range []struct{ name, parameter string }{
				{"threads", "threads"}, {"threshold", "threshold"}, {"throttle", "throttlePercent"}, {"sync-only", "syncOnly"},
			} {
				// For a flag that is not set the node has a default.
				if given := cmd.Flags().Lookup(flag.name); given.Changed {
					s.query.Set(flag.parameter, given.Value.String())
				}
			}
			if err := s.check(); err != nil {
				return err
			}
			return f.on(s.run)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&s.threads, "threads", 1, "how many chunk files to rewrite at a time; at most "+strconv.Itoa(scavenge.MaxThreads))
	flags.Int32Var(&s.threshold, "threshold", 0, "least weight of the chunk files to rewrite; 0: above 0, below 0: all")
	flags.IntVar(&s.throttle, "throttle", 100, "percent of the time that the run may be active; below 100 only with one thread")
	flags.BoolVar(&s.syncOnly, "sync-only", false, "only do what other nodes of the cluster have done, without a new scavenge point")
	flags.BoolVar(&s.all, "all", false, "scavenge all nodes of the cluster, one after the other, the leader last")
	flags.BoolVar(&wait, "wait", true, "follow the run to its end")
	flags.BoolVar(&detach, "detach", false, "print the id of the run, and do not follow it")
	f.following(cmd)
	cmd.MarkFlagsMutuallyExclusive("wait", "detach")
	return cmd
}

func scavengeStopCommand(f *scavengeFlags, stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "stop [ID]",
		Short: "Stop the running scavenge",
		Long:  scavengeStopHelp,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			id := "current"
			if len(args) > 0 {
				if id = strings.TrimSpace(args[0]); id == "" {
					return cannot(errors.New("the id of the scavenge is empty"))
				}
			}
			return f.on(func(ctx context.Context, c *scavengeClient) error {
				stopped, err := c.stop(ctx, id)
				if err != nil {
					return c.uncertain(ctx, err, "whether it was stopped")
				}
				return namedScavenge{Node: c.host, ID: stopped}.print(stdout, f.json)
			})
		},
	}
}

func scavengeStatusCommand(f *scavengeFlags, stdout, stderr io.Writer) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the progress of a scavenge, or how the last one ended",
		Long:  scavengeStatusHelp,
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := f.checkFollowing(); err != nil {
				return err
			}
			return f.on(func(ctx context.Context, c *scavengeClient) error { return c.status(ctx, stdout, stderr, watch) })
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "follow the current run to its end")
	f.following(cmd)
	return cmd
}

// status prints the current run or the last one.
func (c *scavengeClient) status(ctx context.Context, stdout, stderr io.Writer, watch bool) error {
	run, err := c.newest(ctx)
	if err != nil {
		return c.uncertain(ctx, err, "")
	}
	if !watch || run.Result != scavenge.ResultInProgress {
		return run.print(stdout, c.flags.json, time.Now())
	}
	_, err = c.follower(stderr).toEnd(ctx, stdout, run.ID)
	return err
}

func scavengeDryRunCommand(f *scavengeFlags, stdout io.Writer) *cobra.Command {
	var threshold int32
	var top int
	cmd := &cobra.Command{
		Use:   "dry-run",
		Short: "Estimate what a scavenge would remove",
		Long:  scavengeDryRunHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if top < 1 {
				return cannot(errors.New("--top must be 1 or above"))
			}
			query := url.Values{"dryRun": {"true"}, "threshold": {strconv.Itoa(int(threshold))}, "top": {strconv.Itoa(top)}}
			if !cmd.Flags().Changed("timeout") {
				f.timeout = 0
			}
			return f.on(func(ctx context.Context, c *scavengeClient) error { return c.dryRun(ctx, stdout, query) })
		},
	}
	flags := cmd.Flags()
	flags.Int32Var(&threshold, "threshold", 0, "least weight of the chunk files to rewrite; 0: above 0, below 0: all")
	flags.IntVar(&top, "top", 10, "how many streams to list in each table; at most 1000")
	return cmd
}
