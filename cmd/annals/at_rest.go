package main

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/owner"
	"github.com/annalsdb/annals/node"
)

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
