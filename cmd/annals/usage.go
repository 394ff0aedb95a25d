package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/annalsdb/annals/config"
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
	if slices.Contains(possible, value) {
		return nil
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

// completeOptions proposes the options of annals node, and the values of those that can have few.
func completeOptions(_ *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := ""
	if len(args) > 0 {
		before = args[len(args)-1]
	}
	flag, value, hasValue := strings.Cut(begun, "=")
	var found []cobra.Completion
	for _, o := range config.Default().Values() {
		spelled := "--" + config.FlagName(o.Name)
		possible := o.Possible
		if o.Kind == config.KindBool {
			possible = []string{"true", "false"}
		}
		switch {
		case hasValue && flag == spelled:
			for _, p := range possible {
				if hasPrefixFold(p, value) {
					found = append(found, spelled+"="+p)
				}
			}
		case before == spelled && len(o.Possible) > 0:
			for _, p := range possible {
				if hasPrefixFold(p, begun) {
					found = append(found, p)
				}
			}
			return found, cobra.ShellCompDirectiveNoFileComp
		case before == spelled && o.Kind != config.KindBool:
			return nil, cobra.ShellCompDirectiveDefault // A path, mostly.
		case !hasValue && strings.HasPrefix(spelled, begun) && begun != "":
			found = append(found, cobra.CompletionWithDesc(spelled, o.Description))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// values has the shell propose the values of a flag.
func values(cmd *cobra.Command, flag string, possible ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(possible, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // There is no such flag.
	}
}

// confirmation asks before work that cannot be undone. At a terminal the user answers. Without one
// it lets scripts work as they always could, or refuses where a mistake costs acknowledged data.
type confirmation struct {
	yes            bool
	stdin          io.Reader
	stderr         io.Writer
	isTerminal     func() bool
	refuseUnwanted bool // without a terminal, --yes is needed
}

// atTerminal is the confirmation of this process.
func atTerminal(stderr io.Writer) confirmation {
	return confirmation{stdin: os.Stdin, stderr: stderr, isTerminal: func() bool { return term.IsTerminal(int(os.Stdin.Fd())) }}
}

func (c *confirmation) add(flags *pflag.FlagSet) {
	flags.BoolVar(&c.yes, "yes", false, "do not ask for confirmation")
}

// given returns nil when the user wants what a sentence says.
func (c *confirmation) given(sentence string) error {
	switch {
	case c.yes:
		return nil
	case !c.isTerminal():
		if c.refuseUnwanted {
			return cannot(fmt.Errorf("%s: without a terminal, confirm it with --yes", sentence))
		}
		return nil
	}
	if _, err := fmt.Fprintf(c.stderr, "%s. Continue? [y/N] ", sentence); err != nil {
		return err
	}
	answer, err := bufio.NewReader(c.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return cannot(errors.New("not confirmed; nothing was changed"))
}
