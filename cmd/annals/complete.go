package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/config"
)

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
