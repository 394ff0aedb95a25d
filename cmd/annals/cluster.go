package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/owner"
	"github.com/annalsdb/annals/node"
)

const clusterHelp = `Show and change which nodes belong to a cluster, by asking one of its nodes.

The leader makes a change. You can ask any node: the request follows its redirect to
the leader. You must be an administrator or operator of the cluster, unless it runs
without authentication. Set the password in the environment variable ANNALS_PASSWORD:
other users of the machine can read the command line.

A NODE is the id of a node, as list shows it, or the host:port at which other
nodes reach it for replication.`

const (
	membersPath      = "/admin/cluster/members"
	passwordVariable = "ANNALS_PASSWORD"
)

// clusterFlags are the flags that all commands under cluster have.
type clusterFlags struct {
	node, user, password string
	ca                   string
	skipVerify, json     bool
	anonymous            bool // send no credentials
	timeout              time.Duration
	retryFor             time.Duration // 0: nothing is repeated
}

func clusterCommand(stdout, stderr io.Writer) *cobra.Command {
	var f clusterFlags
	confirm := atTerminal(stderr)
	cluster := group("cluster", "Show and change the members of a cluster", clusterHelp)
	f.add(cluster.PersistentFlags(), "address of a node of the cluster", "print the members as JSON")

	run := func(method string, path func(node string) string) func(*cobra.Command, []string) error {
		return func(_ *cobra.Command, args []string) error {
			node := ""
			if len(args) > 0 {
				if node = strings.TrimSpace(args[0]); node == "" {
					return cannot(errors.New("the name of the node is empty"))
				}
			}
			return f.on(func(ctx context.Context, c *nodeClient) error { return c.membership(ctx, stdout, method, path(node)) })
		}
	}
	remove := &cobra.Command{
		Use:   "remove NODE",
		Short: "Remove a member, and list the members",
		Args:  cobra.ExactArgs(1),
	}
	confirm.add(remove.Flags())
	remove.RunE = func(cmd *cobra.Command, args []string) error {
		if err := confirm.given(fmt.Sprintf("This removes %s from the cluster, which then has one copy of its data less", visible(args[0]))); err != nil {
			return err
		}
		if err := run(http.MethodDelete, func(node string) string { return membersPath + "/" + url.PathEscape(node) })(cmd, args); err != nil || f.json {
			return err
		}
		_, err := fmt.Fprintf(stdout, "%s is removed. Once it is stopped it stays in the list for DeadMemberRemovalPeriodSec, "+
			"half an hour by default, and nothing more is to be done.\n", visible(strings.TrimSpace(args[0])))
		return err
	}
	cluster.AddCommand(
		recoverCommand(stdout, stderr),
		acceptLossCommand(stdout, stderr),
		&cobra.Command{
			Use:   "list",
			Short: "List the members, as one node knows them",
			Args:  cobra.NoArgs,
			RunE:  run(http.MethodGet, func(string) string { return membersPath }),
		},
		&cobra.Command{
			Use:   "add NODE",
			Short: "Make a node a member, and list the members",
			Args:  cobra.ExactArgs(1),
			RunE:  run(http.MethodPost, func(node string) string { return membersPath + "?node=" + url.QueryEscape(node) }),
		},
		remove,
	)
	return cluster
}

// add adds the flags to those of a command.
func (f *clusterFlags) add(flags *pflag.FlagSet, node, json string) {
	f.addNode(flags, node)
	flags.BoolVar(&f.json, "json", false, json)
}

func (f *clusterFlags) addNode(flags *pflag.FlagSet, node string) {
	flags.StringVar(&f.node, "node", "http://127.0.0.1:2113", node)
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to wait for the answer")
	f.addCredentials(flags)
}

func (f *clusterFlags) addCredentials(flags *pflag.FlagSet) {
	flags.StringVar(&f.user, "user", "admin", "user to log in as, if there is a password")
	flags.StringVar(&f.password, "password", "", "password (default $"+passwordVariable+"); without one, no credentials are sent")
	flags.BoolVar(&f.skipVerify, "insecure-skip-verify", false, "accept any certificate")
	flags.StringVar(&f.ca, "ca", "", "folder with the certificates of trusted authorities (default those of the system)")
}

// membership sends one request and prints the members that it is answered with.
func (c *nodeClient) membership(ctx context.Context, stdout io.Writer, method, path string) error {
	accept := "text/plain"
	if c.flags.json {
		accept = client.MediaJSON
	}
	const see = "annals cluster list shows whether the members changed"
	answer, err := c.send(ctx, client.Request{Method: method, Path: path, Header: map[string]string{"Accept": accept}})
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted; " + see)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v; %s: %w", c.flags.timeout, see, err)
	case err != nil:
		return err
	}
	switch answer.Status {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusBadRequest:
		return c.explain(answer.Err())
	case http.StatusNotFound:
		return fmt.Errorf("%s does not serve %s: it has no cluster to show, or DisableAdminUi is set", answer.Host(), membersPath)
	case http.StatusRequestTimeout:
		return fmt.Errorf("%s could not finish in time; %s", answer.Host(), see)
	default:
		return fmt.Errorf("%s refuses: %s (status %d)", answer.Host(), cmp.Or(answer.Text(), http.StatusText(answer.Status)), answer.Status)
	}
	if !strings.HasPrefix(answer.Header.Get("Content-Type"), accept) {
		return fmt.Errorf("%s answered something other than a list of members: is it a node of a cluster?", answer.Host())
	}
	return printLine(stdout, answer.Body)
}

// tls returns the configuration for nodes that use TLS.
func (f *clusterFlags) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: f.skipVerify}
	if f.ca == "" {
		return c, nil
	}
	if f.skipVerify {
		return nil, errors.New("--ca and --insecure-skip-verify exclude each other")
	}
	var err error
	c.RootCAs, err = client.Authorities(f.ca)
	return c, err
}

// asOwner does something that writes into folders of a node. What it makes gets the owner of the
// folder: root may run the command, and the service is another user.
func asOwner(do func() error, dirs ...string) error {
	k, err := owner.Keep(dirs...)
	if err != nil {
		return err
	}
	return errors.Join(do(), k.Give())
}

// onOptions makes a command whose arguments are the options of annals node.
func onOptions(use, short, long string, run func(args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long,
		DisableFlagParsing: true, // They are the node's.
		ValidArgsFunction:  completeOptions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
				return cmd.Help()
			}
			return run(args)
		},
	}
}

// without takes a flag out of arguments, and says whether it was there.
func without(args []string, flag string) (rest []string, was bool) {
	rest = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == flag })
	return rest, len(rest) < len(args)
}

// atRest does something to the data of a node that does not run.
func atRest(stderr io.Writer, c *config.Config, do func(node.Options) error) error {
	k, err := owner.Keep(c.Db, c.Index)
	if err != nil {
		return err
	}
	logger := hclog.New(&hclog.LoggerOptions{Name: "annals", Level: hclog.Warn, Output: stderr})
	fatal := func(err error) {
		complain(stderr, errors.Join(err, k.Give()))
		os.Exit(1)
	}
	return errors.Join(do(node.Options{Config: c, Logger: logger, OnFatal: fatal}), k.Give())
}

const recoverHelp = `Make the node of a data folder the only voter of the cluster of its data.

Use it to restore a whole cluster from copies of its files, which have no consensus state.
Restore a copy on every node, the newest on one of them. Run this command on that one, and
on no other. Then start all nodes. The others join it: each keeps its data, the first node
checks them by the chain over the log, and each fetches the rest. If you run the command on
two nodes, you get two clusters.

The new cluster has another history than the one of the copies. A node that still has its
folder raft from before takes no part in it, and the log names it. To have it join with
its data, stop it, rename that folder, and start it.

With --majority-lost the command is for a node that survived when a majority of its
cluster is lost for good. It first takes over the entries that its Raft log has after its
chunks: these may be acknowledged writes, and writes that never were. Then it moves the
folder raft aside, under a name with the time. Later acknowledged writes of the lost nodes
are lost. If several nodes survived, take the one with the highest position in the last
answer of /gossip, or in the log. The other survivors join when their folders raft are
moved away.

The options are those of annals node, as the node is started with: the command needs the
data folder and the address of the port between nodes. The node must not run.`

// majorityLost lets a survivor begin alone.
const majorityLost = "--majority-lost"

// tellTakenOver says what the node has, what may never have been acknowledged, and what may be
// lost.
func tellTakenOver(w io.Writer, c *config.Config, t *node.TakenOver) error {
	var b strings.Builder
	fmt.Fprintf(&b, "applied before: up to position %d\n", t.Before.End)
	if t.Aside != "" {
		fmt.Fprintf(&b, "taken over from the Raft log: %d entries, up to position %d (last entry: term %d, index %d)\n", t.Entries, t.After.End, t.Term, t.Index)
		if t.Entries > 0 {
			fmt.Fprintf(&b, "uncertain: writes from position %d on may never have been acknowledged; a client that got an error or no answer may find its write\n", t.Before.End)
		}
		fmt.Fprintf(&b, "moved aside: %s; remove it when all is well\n", t.Aside)
	}
	fmt.Fprintf(&b, "may be lost: writes after position %d that a majority without this node acknowledged", t.After.End)
	if len(t.Voters) > 0 {
		fmt.Fprintf(&b, " (the voters were %s)", strings.Join(t.Voters, ", "))
	}
	fmt.Fprintf(&b, "\nthe node in %s is now the only voter of its cluster: start it, then the others, with their folders raft moved away, or with empty data folders\n", c.Db)
	_, err := io.WriteString(w, b.String())
	return err
}

// recoverCommand is annals cluster recover.
func recoverCommand(stdout, stderr io.Writer) *cobra.Command {
	confirm := atTerminal(stderr)
	return onOptions("recover [--yes] [options of annals node]", "Begin a cluster again from the files of one node", recoverHelp, func(args []string) error {
		args, lost := without(args, majorityLost)
		args, confirm.yes = without(args, "--yes")
		c, err := config.Load(args, os.Environ(), os.ReadFile)
		if err != nil {
			return err
		}
		if c.ClusterSize == 1 {
			return errors.New("a cluster of one node needs no recovery: start the node (or give the options that it is started with)")
		}
		what := "This makes the node in " + c.Db + " the only voter of its cluster"
		if lost {
			what += ", without the writes that only the lost nodes have"
		}
		if err := confirm.given(what); err != nil {
			return err
		}
		if lost {
			var taken node.TakenOver
			err := atRest(stderr, c, func(o node.Options) (err error) {
				taken, err = node.TakeOver(o)
				return err
			})
			if err != nil {
				return err
			}
			return tellTakenOver(stdout, c, &taken)
		}
		if err := atRest(stderr, c, node.Recover); err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "the node in %s is now the only voter of its cluster: start it, then the others\n", c.Db)
		return err
	})
}

const acceptLossHelp = `Let a node on its own start again although its Raft log is damaged.

A node whose Raft log has lost entries refuses to start: the entries may be acknowledged
writes, and its event log may not have them. In a cluster such a node sets its folder raft
aside by itself and joins again. A node on its own has no other node to ask. If a backup
has more data, restore that. Otherwise this command ends the Raft log before the damage,
prints what is lost, and keeps the old files in a folder raft.lost-TIME next to it.

The options are those of annals node, as the node is started with. The node must not run.`

// acceptLossCommand is annals cluster accept-loss.
func acceptLossCommand(stdout, stderr io.Writer) *cobra.Command {
	confirm := atTerminal(stderr)
	confirm.refuseUnwanted = true
	return onOptions("accept-loss [--yes] [options of annals node]", "Start a node on its own without the damaged end of its Raft log", acceptLossHelp, func(args []string) error {
		args, confirm.yes = without(args, "--yes")
		c, err := config.Load(args, os.Environ(), os.ReadFile)
		if err != nil {
			return err
		}
		if c.ClusterSize != 1 {
			return errors.New("this is for a node on its own: start a node of a cluster, and it joins again with the data of the others; if all of them are lost, see annals cluster recover")
		}
		if err := confirm.given("This gives up the entries after the damage in the Raft log of " + c.Db + ": acknowledged writes may be lost"); err != nil {
			return err
		}
		var done string
		err = atRest(stderr, c, func(o node.Options) (err error) {
			done, err = node.AcceptLoss(o)
			return err
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(stdout, done)
		return err
	})
}
