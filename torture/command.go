package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// ErrViolated says that a round found a violation. All of it was printed before.
var ErrViolated = errors.New("a promise was broken")

const longHelp = `Torture a cluster and prove what it did with the data.

A round starts nodes in a laboratory of network namespaces, one for each, lets clients
write and read, and meanwhile causes the faults below, by a schedule that follows from
--seed. Then the faults end. The cluster must heal, and everything is read back from
every node and compared with what the clients know:

  - every acknowledged event is on every node, once, where the answer said
  - refused writes are nowhere; writes with an unknown outcome are there as a whole or not at all
  - writes to several streams are there whole, with nothing between their events; the money that
    they move is never more or less; their successes and refusals are linearizable
  - readers of indexes and queries, who moved between nodes, saw each event once and in order;
    in the end every index has exactly the events of the log; writers found their events at once
  - writes under conditions: no event that fails a condition lies between its position and the
    write; a refusal names the first one that does; seats are taken once, budgets never overdrawn
  - all nodes show the same log: positions, ids, streams, numbers, times, data
  - every stream has the numbers from 0 on without gaps, and the same events as the log
  - the log has events in the order of real time; readings that require the leader are
    linearizable; what followers showed at any time is a prefix of the final log
  - subscribers that moved between nodes saw every event once and in order
  - writes sent again with the same ids wrote nothing twice
  - every event of a stream with persistent subscriptions was acknowledged or parked in each
    group; none was given to two consumers at once, retried too often, or skipped by a checkpoint;
    none came before its delay was over, or passed a delayed one of its stream; paused groups gave
    nothing; after a reset all came again; no parked message was forwarded twice
  - scavenges removed what limits and deletions hide, and nothing else; nodes that were scavenged
    up to one point hold the same events, and as leaders they give the same answers
  - a projection that copies and counts events, and $by_category, handled each event once and in
    order
  - backups taken meanwhile restore: all events acknowledged before are there, and nothing else
  - data that a node has redacted are in none of its files; everything else is as before
  - with --tls, users whom the operator changes are let in and shown streams, or not, by every node
    that has the change
  - nodes that are to take new certificates show them on new connections
  - certificates that have run out bring about no new connection, clients and operators learn why,
    and renewed ones heal the cluster
  - voters that were removed are replaced, and the other machine gets all data and a vote
  - added voters count for the majority, without which nothing is done; removed ones do not
  - no node loses its consensus state unless a fault destroys it
  - no node ended by itself, none took long to heal, and verify finds no damage

Faults:

%s
Progress goes to standard error. Standard output gets the timeline, the times without a
successful write for each kind of fault, metrics and the verdict. After a round with
violations, the data and logs of the nodes and the history of the clients stay in
--keep.

The laboratory needs Linux and root; without them, nodes get loopback addresses, and
faults of the network are left out. --attach does nothing to the nodes that it is given:
it only runs clients and checks.

--bit-flips runs a small load, and changes bits in files of every kind, on leader and
followers, while a node runs or before it starts. After each change the cluster must
become whole again, with only the help of an operator who starts the node again or gives
it an empty disk. No acknowledged event may be lost, doubled or renumbered, and nodes
that answer differently must say so within a minute.

Exit codes: 0 no violation, 1 violations, 2 it could not be run.`

// Command returns the command torture.
func Command() *cobra.Command {
	var o options
	var list strings.Builder
	for _, f := range allFaults() {
		fmt.Fprintf(&list, "  %-17s %s\n", f.name, f.doc)
	}
	cmd := &cobra.Command{
		Use:   "torture",
		Short: "Break a cluster on purpose and check what it did with the data",
		Long:  fmt.Sprintf(longHelp, list.String()),
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return run(cmd, &o) },
	}
	cmd.SilenceUsage = true
	f := cmd.Flags()
	for _, n := range o.numbers() {
		f.IntVar(n.value, n.name, n.usual, n.doc)
	}
	f.Float64Var(&o.seconds, "seconds", 60, "how long faults strike in each round")
	f.Uint64Var(&o.seed, "seed", 0, "seed of all choices; 0 takes one from the clock")
	f.StringSliceVar(&o.faultNames, "faults", nil, "faults to choose from, separated by commas; none for none (default all)")
	f.BoolVar(&o.diskFaults, "disk-faults", false, "fill the disks of nodes now and then")
	f.BoolVar(&o.loopback, "loopback", false, "use loopback addresses in place of network namespaces: no faults of the network")
	f.BoolVar(&o.tls, "tls", false, "give nodes certificates and users, which clients sign in as; other clusters run with --insecure")
	f.BoolVar(&o.scavenges, "scavenges", true, "start and stop scavenges on all nodes, and compare what they leave")
	f.BoolVar(&o.projections, "projections", true, "run projections, stop and enable them, and compare what they write with the log")
	f.BoolVar(&o.backups, "backups", true, "take backups of all nodes, and restore some of them in the end")
	f.BoolVar(&o.redactions, "redactions", true, "redact events on some nodes, and look for their data in the files of these")
	f.Float64Var(&o.rate, "rate", 800, "operations a second of all writers together, 0 for as many as possible")
	f.DurationVar(&o.timeout, "timeout", 3*time.Second, "how long clients wait for an answer")
	f.DurationVar(&o.heal, "heal", 90*time.Second, "how long the cluster may take to heal when the faults are over")
	f.DurationVar(&o.every, "progress", 5*time.Second, "time between lines of progress")
	f.StringVar(&o.binary, "binary", "", "program to run as node and for verify (default this one)")
	f.StringArrayVar(&o.nodeOptions, "option", nil, "option for every node, such as --option=--raft-log-store=Wal; repeatable")
	f.StringSliceVar(&o.attach, "attach", nil, "addresses of the nodes of a running cluster, to run clients and checks only")
	f.StringVar(&o.keep, "keep", filepath.Join(os.TempDir(), "annals-torture"), "folder for clusters while they run, and for the files of rounds with violations")
	f.BoolVar(&o.failFast, "fail-fast", false, "end with the first violation")
	f.BoolVar(&o.json, "json", false, "print one JSON document a round in place of the report")
	return cmd
}

func run(cmd *cobra.Command, o *options) error {
	if err := o.validate(); err != nil {
		return err
	}
	faults, err := chooseFaults(o.faultNames)
	if err != nil {
		return err
	}
	if o.binary == "" {
		if o.binary, err = os.Executable(); err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	if o.keep, err = filepath.Abs(o.keep); err != nil {
		return err
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000_000
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	violated := false
	for i := range o.rounds {
		if violated && o.failFast {
			break
		}
		if o.bitFlips > 0 {
			f, err := flipRound(ctx, o, o.seed+uint64(i), cmd.ErrOrStderr())
			if f != nil {
				violated = violated || f.find.total() > 0
				err = errors.Join(err, f.print(cmd.OutOrStdout()))
			}
			if err != nil {
				return fmt.Errorf("seed %d: %w", o.seed+uint64(i), err)
			}
			continue
		}
		s, err := oneRound(ctx, o, faults, o.seed+uint64(i), cmd.ErrOrStderr())
		if err != nil {
			return fmt.Errorf("seed %d: %w", o.seed+uint64(i), err)
		}
		violated = violated || len(s.Violations) > 0
		if err := s.print(cmd.OutOrStdout(), o.json); err != nil {
			return err
		}
	}
	if violated {
		return ErrViolated
	}
	return nil
}

// folder says what begins, and makes a folder for it.
func (o *options) folder(of string, seed uint64, out io.Writer, format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(out, format, args...); err != nil {
		return "", err
	}
	if err := os.MkdirAll(o.keep, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(o.keep, fmt.Sprintf("%s-%d-", of, seed))
}

// oneRound runs a round and removes what it leaves, unless that is evidence.
func oneRound(ctx context.Context, o *options, faults []fault, seed uint64, out io.Writer) (*Summary, error) {
	dir, err := o.folder("seed", seed, out, "torture: seed %d\n", seed)
	if err != nil {
		return nil, err
	}
	var c Cluster
	if len(o.attach) > 0 {
		if c, err = newGiven(o.attach); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	r := newRound(o, seed, faults, dir, out, c)
	s, err := r.run(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, errors.Join(errors.New("interrupted"), os.RemoveAll(dir))
	case err != nil:
		// The logs of nodes may tell why.
		return nil, fmt.Errorf("%w\n(%s is kept)", err, dir)
	case len(s.Violations) > 0:
		s.Kept = dir
		return s, r.keepEvidence(s)
	}
	// The folder around it goes with the last round, unless it holds something.
	err = os.RemoveAll(dir)
	_ = os.Remove(o.keep)
	return s, err
}

// flipRound runs a round of bit flips. Its folder stays where a promise was broken.
func flipRound(ctx context.Context, o *options, seed uint64, out io.Writer) (*flipper, error) {
	dir, err := o.folder("flips", seed, out, "torture: %d bit flips, seed %d\n", o.bitFlips, seed)
	if err != nil {
		return nil, err
	}
	f, err := runFlips(ctx, o, seed, filepath.Join(dir, "cluster"), out)
	if f != nil && f.find.total() > 0 {
		_, perr := fmt.Fprintf(out, "%s is kept\n", dir)
		return f, errors.Join(err, perr)
	}
	return f, errors.Join(err, os.RemoveAll(dir))
}

// keepEvidence writes what the clients know next to the data of the nodes.
func (r *round) keepEvidence(s *Summary) error {
	err := writeLines(filepath.Join(r.dir, "summary.json"), func(e *json.Encoder) error { return e.Encode(s) })
	if r.load == nil { // No client has begun.
		return err
	}
	return errors.Join(err,
		writeLines(filepath.Join(r.dir, "history.jsonl"), r.writeHistory),
		writeLines(filepath.Join(r.dir, "log.jsonl"), r.writeLog),
		writeLines(filepath.Join(r.dir, "messages.jsonl"), r.writeMessages),
	)
}

// writeLines writes a file of JSON documents.
func writeLines(name string, write func(*json.Encoder) error) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	return errors.Join(write(json.NewEncoder(w)), w.Flush())
}

// writeHistory writes one line for each operation, client by client.
func (r *round) writeHistory(e *json.Encoder) (err error) {
	r.load.hist.each(func(first ref, o *op) {
		line := map[string]any{
			"client": first.client(), "op": o.kind.String(), "stream": o.stream.name, "call": o.call, "return": o.ret,
			"outcome": o.outcome, "expected": o.expected, "count": o.count, "number": o.number, "node": o.node, "attempts": o.attempts,
		}
		switch {
		case o.kind == opTransfer:
			line["id"], line["transfer"] = r.load.ids.id(first), o.transfer.String()
		case o.kind == opDecision:
			line["id"], line["decision"] = r.load.ids.id(first), o.decision.String()
		case o.kind == opAppend:
			line["id"] = r.load.ids.id(first)
		case o.seen != 0:
			line["id"] = r.load.ids.id(o.seen)
		}
		err = errors.Join(err, e.Encode(line))
	})
	return err
}

// writeLog writes one line for each event of the log as readers saw it.
func (r *round) writeLog(e *json.Encoder) (err error) {
	b := r.load.book
	b.mu.Lock()
	defer b.mu.Unlock()
	for o, f := range b.facts {
		line := map[string]any{"event": o, "stream": f.stream.name, "number": f.number, "endsAt": max(f.after, 0), "firstShownBy": b.definer(o).String()}
		if !f.ref.isForeign() {
			line["id"] = b.ids.id(f.ref)
		}
		err = errors.Join(err, e.Encode(line))
	}
	return err
}

// writeMessages writes one line for each message, each answer and each act of the operator.
func (r *round) writeMessages(e *json.Encoder) error {
	if r.subs == nil {
		return nil
	}
	var err error
	for _, c := range r.subs.consumers {
		for i := range c.steps {
			err = errors.Join(err, e.Encode(&c.steps[i]))
		}
	}
	for i := range r.subs.acts {
		err = errors.Join(err, e.Encode(&r.subs.acts[i]))
	}
	return err
}
