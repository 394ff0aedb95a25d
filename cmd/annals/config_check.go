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

const configCheckHelp = `Find every mistake for which a node would refuse to start: unknown options, wrong values,
options that exclude each other, schedules, certificates and folders. Each mistake is a
line with the file and line, or the variable, where it was set. A node may run meanwhile.
Nothing is changed: in the folder of BackupTo a file is made and removed again.

A warning keeps no node from starting. As root, the command also warns of files that the
owner of the data folder may not read or write: the service runs as that user.

The options are those of annals node, as the node is started with. The command reads the
same environment and the same configuration file. Only the start itself finds out that a
port is taken, that another node has the data folder open, or that data are damaged.

Exit codes: 0 a node would start, 2 it would refuse to.`

func configCommand(stdout io.Writer) *cobra.Command {
	return group("config", "Check the configuration of a node", "", configCheckCommand(stdout))
}

func configCheckCommand(stdout io.Writer) *cobra.Command {
	cmd := onOptions("check [options of annals node]", "Find all mistakes for which a node would refuse to start", configCheckHelp, func(args []string) error {
		return checkConfig(args, os.Environ(), os.ReadFile, stdout)
	})
	cmd.Example = "  annals config check\n  annals config check --config /etc/annals/annals.conf"
	return cmd
}

func checkConfig(args, environ []string, readFile func(string) ([]byte, error), stdout io.Writer) error {
	c, err := config.Load(args, environ, readFile)
	if err != nil {
		return cannot(err)
	}
	if err := errors.Join(append(node.Check(c), checkSchedules(c))...); err != nil {
		return cannot(err)
	}
	warnings := append(c.Warnings(), serviceDoubts(c)...)
	if err := tryBackups(c); err != nil {
		warnings = append(warnings, err.Error())
	}
	for _, line := range warnings {
		if _, err := fmt.Fprintf(stdout, "warning: %s\n", line); err != nil {
			return err
		}
	}
	from := "no configuration file was read"
	if c.File() != "" {
		from = c.File() + " was read"
	}
	_, err = fmt.Fprintf(stdout, "the configuration is correct (%s)\n", from)
	return err
}
