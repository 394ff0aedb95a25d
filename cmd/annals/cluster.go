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
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/client"
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
	flags.StringVar(&f.node, "node", "http://127.0.0.1:2113", node)
	flags.BoolVar(&f.json, "json", false, json)
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
