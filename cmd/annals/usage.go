package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/internal/spelling"
)

// usage gives a command and all below it the same answers to bad usage: exit code 2, and the
// nearest known name. An error counts as bad usage until the work of a command begins.
func usage(cmd *cobra.Command, begun *bool) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
			var known []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
			if near := nearest(name, known); near != "" {
				return fmt.Errorf("%w, did you mean --%s?", err, near)
			}
		}
		return fmt.Errorf("%w, see %s --help", err, cmd.CommandPath())
	})
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			switch {
			case err == nil:
				return nil
			case strings.HasPrefix(err.Error(), "unknown command") && !cmd.HasAvailableSubCommands():
				return fmt.Errorf("unexpected argument %q, see %s --help", args[0], cmd.CommandPath())
			}
			return fmt.Errorf("%w, see %s --help", err, cmd.CommandPath())
		}
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*begun = true
			return run(cmd, args)
		}
	}
	for _, below := range cmd.Commands() {
		usage(below, begun)
	}
}

// unknownCommand is the error of a word that is not a command below another one.
func unknownCommand(cmd *cobra.Command, word string) error {
	var known []string
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() {
			known = append(known, below.Name())
			if slices.Contains(below.SuggestFor, word) {
				return cannot(fmt.Errorf("unknown command %q, did you mean %s?", word, below.CommandPath()))
			}
		}
	}
	if near := nearest(word, known); near != "" {
		return cannot(fmt.Errorf("unknown command %q, did you mean %s %s?", word, cmd.CommandPath(), near))
	}
	return cannot(fmt.Errorf("unknown command %q, see %s --help", word, cmd.CommandPath()))
}

// nearest returns the known name that differs least from a word, or nothing if none is near.
func nearest(word string, known []string) string {
	best, distance := "", len(word)/3+1
	if len(word) >= 5 {
		distance = max(distance, 3) // Two letters that changed places are two edits.
	}
	for _, name := range known {
		if d := spelling.Distance(strings.ToLower(word), name, distance); d < distance {
			best, distance = name, d
		}
	}
	return best
}

// oneOf refuses a value of a flag that is not one of those that it can have.
func oneOf(flag, value string, possible ...string) error {
	for _, p := range possible {
		if value == p {
			return nil
		}
	}
	err := fmt.Errorf("--%s %q is none of %s", flag, value, strings.Join(possible, ", "))
	if near := nearest(value, possible); near != "" {
		err = fmt.Errorf("%w, did you mean %s?", err, near)
	}
	return cannot(err)
}

// helpCommand is cobra's, with exit code 2 for a command that does not exist.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "help [command]",
		Short:             "Print the help of a command",
		ValidArgsFunction: completeCommands,
		RunE: func(cmd *cobra.Command, args []string) error {
			about := cmd.Root()
			for _, word := range args {
				var next *cobra.Command
				for _, below := range about.Commands() {
					if below.Name() == word || below.HasAlias(word) {
						next = below
					}
				}
				if next == nil {
					return unknownCommand(about, word)
				}
				about = next
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// completeCommands proposes the commands below those that are named.
func completeCommands(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	about := cmd.Root()
	if len(args) > 0 {
		if found, rest, err := about.Find(args); err == nil && len(rest) == 0 {
			about = found
		}
	}
	for _, below := range about.Commands() {
		if below.IsAvailableCommand() {
			names = append(names, cobra.CompletionWithDesc(below.Name(), below.Short))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
