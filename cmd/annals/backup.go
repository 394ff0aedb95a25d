package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func backupCommand(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "backup",
		Short: "Back nodes up, and restore them",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q, see annals backup --help", args[0])
			}
			return cmd.Help()
		},
	}
	root.AddCommand(
		backupCreate(stdout, stderr), backupList(stdout), backupVerify(stdout, stderr), backupRestore(stdout, stderr), backupPrune(stdout),
		backupStatusCommand(stdout),
	)
	return root
}
