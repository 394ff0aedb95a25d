package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/node"
)

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
