// Package main is the annals binary: it reads the configuration, runs a node
// until a signal or the node itself ends it, and holds the commands that need no
// running node.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/bench"
	"github.com/annalsdb/annals/simulation"
	"github.com/annalsdb/annals/torture"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, runNode))
}

// nodeCommand starts a node with the given options and returns when it has stopped.
type nodeCommand func(args []string, stdout, stderr io.Writer) error

// run executes one command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer, start nodeCommand) int {
	return execute(newRoot(stdout, stderr, start), withCommand(args), stderr)
}

// execute executes a command line of a tree of commands and returns the exit code.
func execute(root *cobra.Command, args []string, stderr io.Writer) int {
	begun := false
	usage(root, &begun)
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	if _, wrong := errors.AsType[*bench.UsageError](err); wrong || !begun {
		err = cannot(err)
	}
	return exitCode(stderr, err)
}

// complain prints an error, each of its lines on one of ours. The process is about to
// end. A pipe without a reader must not keep it from that.
func complain(stderr io.Writer, err error) {
	// When standard error is closed, there is no other place to write to.
	_ = briefly(func() (broken error) {
		for line := range strings.SplitSeq(strings.TrimSpace(err.Error()), "\n") {
			_, e := fmt.Fprintf(stderr, "annals: %s\n", line)
			broken = errors.Join(broken, e)
		}
		return broken
	})
}

// withCommand lets options without a command mean the command node: EventStoreDB is
// started like that. Help alone is about all commands, and -v alone asks for the version.
func withCommand(args []string) []string {
	if len(args) == 1 && args[0] == "-v" {
		return []string{"version"}
	}
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") || len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		return args
	}
	return append([]string{"node"}, args...)
}

func newRoot(stdout, stderr io.Writer, start nodeCommand) *cobra.Command {
	root := group("annals", "An event-sourcing database",
		"Annals is an event-sourcing database: immutable events in named streams, over HTTP and gRPC.\n\n"+
			"Options without a command start a node: annals --db /srv/annals is annals node --db /srv/annals.\n\n"+
			"Bad usage of a command is exit code 2. A node that refuses its options ends with exit code 1.")
	root.SilenceUsage, root.SilenceErrors = true, true
	// The options of a command that does not exist are unknown, too: the error names the command.
	root.FParseErrWhitelist.UnknownFlags = true
	root.SetHelpCommand(helpCommand())
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(
		&cobra.Command{
			Use: "node [options]",
			// What others call it.
			SuggestFor: []string{"start", "serve", "server", "run"},
			Short:      "Run a node; annals node --help lists the options",
			Long:       "Run a node. The list of its options is printed by: annals node --help",
			// The table of options has spellings that flag libraries do not know.
			DisableFlagParsing: true,
			ValidArgsFunction:  completeOptions,
			RunE: func(_ *cobra.Command, args []string) error {
				return start(args, stdout, stderr)
			},
		},
		versionCommand(stdout),
		configCommand(stdout),
		healthCommand(stdout),
		docsCommand(),
		redactCommand(stdout, stderr),
		verifyCommand(stdout, stderr),
		certsCommand(stdout),
		clusterCommand(stdout, stderr),
		scavengeCommand(stdout, stderr),
		backupCommand(stdout, stderr),
		doctorCommand(stdout),
		tailCommand(stdout, stderr),
		queryCommand(stdout, stderr),
		indexCommand(stdout),
		appendCommand(os.Stdin, stdout, stderr),
		groupCommand(stdout),
		projectionCommand(os.Stdin, stdout, stderr),
		userCommand(terminalSecrets(os.Stdin, stderr), stdout),
		devCommand(os.Stdin, stdout, stderr),
		bench.Command(),
		tortureCommand(stdout, stderr),
	)
	return root
}

// group makes a command that only has others below it.
func group(use, short, long string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(below...)
	return cmd
}

// tortureCommand gives the outcomes of torture their exit codes. Broken promises, which
// torture itself prints, differ from a run that could not be made.
func tortureCommand(stdout, stderr io.Writer) *cobra.Command {
	cmd := torture.Command()
	simulation.AddTo(cmd)
	torment := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch err := torment(cmd, args); {
		case err == nil:
			return nil
		case errors.Is(err, torture.ErrViolated):
			return &codedError{code: exitProblems}
		default:
			return cannot(err)
		}
	}
	// A node whose clock torture may set. No environment and no option of a node does that.
	cmd.AddCommand(&cobra.Command{
		Use:                "node CLOCK [options]",
		Short:              "Run a node by the clock of a file",
		Hidden:             true,
		DisableFlagParsing: true,
		Args:               cobra.MinimumNArgs(1),
		RunE:               func(_ *cobra.Command, args []string) error { return runNodeBy(args[0], args[1:], stdout, stderr) },
	})
	return cmd
}

func versionCommand(stdout io.Writer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the compiler of this binary",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return printJSON(stdout, versionOfBuild(buildVersion(), buildInfo()))
			}
			return printVersion(stdout)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON in place of text")
	return cmd
}

func printVersion(w io.Writer) error {
	_, err := fmt.Fprintln(w, versionLine())
	return err
}

// errForced says that a second signal ended the process.
var errForced = errors.New("a second signal stopped the node before it had written everything")

// version is set by the linker: -ldflags "-X main.version=1.2.3".
var version string

// buildVersion returns the version that the linker or the Go tool wrote into this binary.
func buildVersion() string {
	if version != "" {
		return version
	}
	return versionOf(buildInfo())
}

// versionLine has the version, the commit, and the compiler.
func versionLine() string { return describe(buildVersion(), buildInfo()) }

func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return new(debug.BuildInfo)
}

// versionDocument is what annals version --json prints.
type versionDocument struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`   // empty: unknown
	Modified bool   `json:"modified"` // the sources differed from the commit
	Built    string `json:"time"`     // of the commit; empty: unknown
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// versionOfBuild is the document about a binary of the given version.
func versionOfBuild(version string, info *debug.BuildInfo) versionDocument {
	d := versionDocument{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			d.Commit = s.Value
		case "vcs.modified":
			d.Modified = s.Value == "true"
		case "vcs.time":
			d.Built = s.Value
		}
	}
	return d
}

// describe is the line about a binary of the given version.
func describe(version string, info *debug.BuildInfo) string {
	details := []string{runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH}
	switch commit := commitOf(info); {
	case commit != "":
		details = append([]string{"commit " + commit}, details...)
	case version == unversioned: // A pseudo-version ends with the commit.
		details = append([]string{"built without version control information; go build or go run -buildvcs=true has it"}, details...)
	}
	return "annals " + version + " (" + strings.Join(details, ", ") + ")"
}

// unversioned is the version of a binary of which nothing is known.
const unversioned = "devel"

// versionOf prefers the module's version; a binary built in a work tree has none
// and is named after the commit.
func versionOf(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	if commit := commitOf(info); commit != "" {
		return unversioned + "-" + commit
	}
	return unversioned
}

// commitOf names the commit that the binary was built from, if the Go tool knew it.
func commitOf(info *debug.BuildInfo) string {
	d := versionOfBuild("", info)
	commit := d.Commit[:min(12, len(d.Commit))]
	if d.Modified && commit != "" {
		commit += "+changes"
	}
	return commit
}
