package main

import (
	"errors"
	"fmt"
	"io"
	"os"

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

The options are those of annals node, as the node is started with: the command needs
the data folder and the address of the port between nodes. The node must not run.`

// recoverCommand is annals cluster recover.
func recoverCommand(stdout, stderr io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:                "recover [options of annals node]",
		Short:              "Begin a cluster anew from one node's files",
		Long:               recoverHelp,
		DisableFlagParsing: true, // They are the node's.
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if arg == "--help" || arg == "-h" {
					return cmd.Help()
				}
			}
			c, err := config.Load(args, os.Environ(), os.ReadFile)
			if err != nil {
				return err
			}
			if c.ClusterSize == 1 {
				return errors.New("a cluster of one needs no recovery: start the node (or give the options that it is started with)")
			}
			logger := hclog.New(&hclog.LoggerOptions{Name: "annals", Level: hclog.Warn, Output: stderr})
			fatal := func(err error) {
				complain(stderr, err)
				os.Exit(1)
			}
			if err := node.Recover(node.Options{Config: c, Logger: logger, OnFatal: fatal}); err != nil {
				return err
			}
			_, err = fmt.Fprintf(stdout, "the node in %s is the only voter of its cluster now: start it, then the others\n", c.Db)
			return err
		},
	}
}
