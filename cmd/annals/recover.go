package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/node"
)

const recoverHelp = `Make the node of a data folder the only voter of the cluster of its data.

This is for restoring a whole cluster from copies of its files, which hold no
consensus state. Restore a copy on every node, with the newest on one of them; run
this command on that one, and on no other; then start all nodes. The others join it:
each keeps what it has, is checked against the first by the chain over its log, and
fetches the rest. Done on two nodes, it makes two clusters.

What begins here is another history than the one that the copies were taken from: a node that
still has its folder raft from before takes no part in it, and is named in the log. To have it
join with its data, stop it, rename that folder, and start it.

With --majority-lost it is for a node that survived when a majority of its cluster is lost
for good. What its Raft log has behind its chunks is taken over first: that may be writes which
were acknowledged, and writes which never were. Its folder raft is then moved aside, under a
name with the time. What the lost nodes had acknowledged beyond that is lost. Where several
nodes survived, take the one of which /gossip, or the log, told the highest position last. The
other survivors join when their folders raft are out of the way.

The options are those of annals node, as the node is started with: the command needs
the data folder and the address of the port between nodes. The node must not run.`

// majorityLost has a survivor begin alone.
const majorityLost = "--majority-lost"

// tellTakenOver says what the node has, what of it is in doubt, and what may be lost.
func tellTakenOver(w io.Writer, c *config.Config, t *node.TakenOver) error {
	var b strings.Builder
	fmt.Fprintf(&b, "applied before: up to position %d\n", t.Before.End)
	if t.Aside != "" {
		fmt.Fprintf(&b, "taken over from the Raft log: %d entries, up to position %d (last entry: term %d, index %d)\n", t.Entries, t.After.End, t.Term, t.Index)
		if t.Entries > 0 {
			fmt.Fprintf(&b, "in doubt: what lies from position %d on may never have been acknowledged; whoever was told of a failure or of nothing finds it written\n", t.Before.End)
		}
		fmt.Fprintf(&b, "moved aside: %s, remove it when all is well\n", t.Aside)
	}
	fmt.Fprintf(&b, "may be lost: what a majority without this node had acknowledged beyond position %d", t.After.End)
	if len(t.Voters) > 0 {
		fmt.Fprintf(&b, " (the voters were %s)", strings.Join(t.Voters, ", "))
	}
	fmt.Fprintf(&b, "\nthe node in %s is the only voter of its cluster now: start it, then the others, with their folders raft moved away, or with empty data folders\n", c.Db)
	_, err := io.WriteString(w, b.String())
	return err
}

// without takes a flag out of arguments, and says whether it was there.
func without(args []string, flag string) (rest []string, was bool) {
	rest = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == flag })
	return rest, len(rest) < len(args)
}

// recoverCommand is annals cluster recover.
func recoverCommand(stdout, stderr io.Writer) *cobra.Command {
	confirm := atTerminal(stderr)
	return &cobra.Command{
		Use:                "recover [--yes] [options of annals node]",
		Short:              "Begin a cluster anew from one node's files",
		Long:               recoverHelp,
		DisableFlagParsing: true, // They are the node's.
		ValidArgsFunction:  completeOptions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asksForHelp(args) {
				return cmd.Help()
			}
			args, lost := without(args, majorityLost)
			args, confirm.yes = without(args, "--yes")
			c, err := config.Load(args, os.Environ(), os.ReadFile)
			if err != nil {
				return err
			}
			if c.ClusterSize == 1 {
				return errors.New("a cluster of one needs no recovery: start the node (or give the options that it is started with)")
			}
			what := "This makes the node in " + c.Db + " the only voter of its cluster"
			if lost {
				what += ", without the writes that only the lost nodes have"
			}
			if err := confirm.given(what); err != nil {
				return err
			}
			logger := hclog.New(&hclog.LoggerOptions{Name: "annals", Level: hclog.Warn, Output: stderr})
			fatal := func(err error) {
				complain(stderr, err)
				os.Exit(1)
			}
			if lost {
				taken, err := node.TakeOver(node.Options{Config: c, Logger: logger, OnFatal: fatal})
				if err != nil {
					return err
				}
				return tellTakenOver(stdout, c, &taken)
			}
			if err := node.Recover(node.Options{Config: c, Logger: logger, OnFatal: fatal}); err != nil {
				return err
			}
			_, err = fmt.Fprintf(stdout, "the node in %s is the only voter of its cluster now: start it, then the others\n", c.Db)
			return err
		},
	}
}
