package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const projectionHelp = `Show, make and change projections: scripts that read events, keep a state and emit events.

Projections run on the leader. You can ask any node: the request follows its redirect to
the leader. Nodes run projections only with the option RunProjections. You need
credentials, unless the cluster runs without authentication, and most changes need an
operator or administrator. Set the password in the environment variable ANNALS_PASSWORD:
other users of the machine can read the command line.`

const projectionCreateHelp = `Make a projection from the script in a FILE; - reads standard input.

A continuous projection runs for ever, survives restarts and needs a NAME. A projection of
the kind onetime or transient ends with its input. A transient one is removed when no
client has asked for it for a while.

The command ends when the projection runs, or has faulted. --type native:NAME chooses a
handler in Go; its FILE is its configuration.

Exit codes: 0 success, 1 it was not made, 2 bad arguments, 3 it was made and has faulted.`

const projectionUpdateHelp = `Replace the script of a projection, its configuration, or both. - in place of the FILE
reads standard input.

A running projection continues with the new script from its position, with its state:
reset it to handle all events again. A configuration is a JSON object as show --config
prints it. It replaces the whole configuration, and a member that is left out becomes
zero. The projection must be stopped or have faulted.

Exit codes: 0 success, 1 nothing was changed, 2 bad arguments, 3 it was changed and has
faulted.`

const projectionStateHelp = `Print the state of a projection or of a partition as JSON. Without a state, as before the
first event, it prints nothing.`

const projectionResultHelp = `Print the result of a projection or of a partition as JSON: the state after transformBy
and filterBy. Without a result it prints nothing.`

const projectionDeleteHelp = `Delete a projection. It must be stopped or have faulted, unless it is transient: disable it
first. Its streams stay, unless flags say otherwise.`

// The values of --kind.
var (
	listedKinds = []string{"any", "all-non-transient", "continuous", "onetime", "transient"}
	madeKinds   = []string{"continuous", "onetime", "transient"}
)

// exitFaulted says that the command was carried out and the projection has faulted.
const exitFaulted = 3

// projectionFlags are what the commands below projection have in common.
type projectionFlags struct{ clusterFlags }

func projectionCommand(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	var f projectionFlags
	root := group("projection", "Show, make and change projections", projectionHelp)
	f.add(root.PersistentFlags(), "address of a node of the cluster", "print JSON in place of text")
	root.AddCommand(
		projectionListCommand(&f, stdout),
		projectionShowCommand(&f, stdout),
		projectionCreateCommand(&f, stdin, stdout),
		projectionUpdateCommand(&f, stdin, stdout),
		projectionDeedCommand(&f, stdout, "enable", "Let a projection run", "Let a projection run from where it was stopped, and wait until it runs.\n\nExit codes: 0 success, 1 it was not enabled, 3 it has faulted."),
		projectionDeedCommand(&f, stdout, "disable", "Stop a projection with a checkpoint", "Write the emitted events of a projection and a checkpoint, stop it, and wait until it has\nstopped."),
		projectionDeedCommand(&f, stdout, "reset", "Forget the state of a projection and begin again", "Forget the state and the position of a projection. A running one begins again at the start\nof its input, and truncates the streams that it emits to.\n\nExit codes: 0 success, 1 it was not reset, 3 it has faulted."),
		projectionDeedCommand(&f, stdout, "abort", "Stop a projection at once, without a checkpoint", "Stop a projection at once, without a checkpoint. When it is enabled, it handles the events\nsince its last checkpoint again."),
		projectionRebuildCommand(&f, stdin, stdout),
		projectionRebuildStatusCommand(&f, stdout),
		f.named("swap", "Let the second version of a projection take over", projectionSwapHelp, func(ctx context.Context, c *projectionClient, name string) error {
			return c.swap(ctx, stdout, name)
		}),
		projectionRebuildAbortCommand(&f, stdout),
		projectionDeleteCommand(&f, stdout),
		projectionReadCommand(&f, stdout, "state", "Print the state of a projection", projectionStateHelp),
		projectionReadCommand(&f, stdout, "result", "Print the result of a projection", projectionResultHelp),
		projectionQueryCommand(&f, stdout),
		projectionTestCommand(stdin, stdout, stderr),
	)
	return root
}

// named makes a command that does something with the projection that its only argument names.
func (f *projectionFlags) named(use, short, long string, do func(ctx context.Context, c *projectionClient, name string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " NAME", Short: short, Long: long, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.onNamed(args[0], do) },
	}
}

// onNamed runs what a command does with a projection.
func (f *projectionFlags) onNamed(name string, do func(ctx context.Context, c *projectionClient, name string) error) error {
	if strings.TrimSpace(name) == "" {
		return cannot(errors.New("the name of the projection is empty"))
	}
	return f.on(func(ctx context.Context, c *projectionClient) error { return do(ctx, c, name) })
}

// on runs what a command does with the node.
func (f *projectionFlags) on(do func(ctx context.Context, c *projectionClient) error) error {
	return f.clusterFlags.on(func(ctx context.Context, node *nodeClient) error {
		err := do(ctx, &projectionClient{node})
		if err != nil && ctx.Err() != nil {
			return &codedError{code: exitDetached, err: errors.New("interrupted; see what was done with annals projection list" + node.nodeFlag())}
		}
		return err
	})
}

func projectionListCommand(f *projectionFlags, stdout io.Writer) *cobra.Command {
	kind := "any"
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the projections",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := oneOf("kind", kind, listedKinds...); err != nil {
				return err
			}
			return f.on(func(ctx context.Context, c *projectionClient) error {
				list, err := c.list(ctx, kind)
				if err != nil {
					return err
				}
				return list.print(stdout, f.json)
			})
		},
	}
	cmd.Flags().StringVar(&kind, "kind", kind, "which are listed: "+strings.Join(listedKinds, ", "))
	values(cmd, "kind", listedKinds...)
	return cmd
}

func projectionShowCommand(f *projectionFlags, stdout io.Writer) *cobra.Command {
	var config bool
	cmd := f.named("show", "Show the state of a projection, or its configuration", "", func(ctx context.Context, c *projectionClient, name string) error {
		if config {
			return c.printOf(ctx, stdout, name, "/config", nil)
		}
		p, err := c.statistics(ctx, name)
		if err != nil {
			return err
		}
		return p.print(stdout, f.json)
	})
	cmd.Flags().BoolVar(&config, "config", false, "print the configuration, as JSON")
	return cmd
}

func projectionCreateCommand(f *projectionFlags, stdin io.Reader, stdout io.Writer) *cobra.Command {
	kind := "continuous"
	cmd := &cobra.Command{
		Use:   "create [NAME] FILE",
		Short: "Make a projection from a script",
		Long:  projectionCreateHelp,
		Example: `  annals projection create orders orders.js --emit
  annals projection create orders - < orders.js
  annals projection create count.js --kind transient`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{}
			if err := oneOf("kind", kind, madeKinds...); err != nil {
				return err
			}
			if len(args) == 2 {
				if strings.TrimSpace(args[0]) == "" {
					return cannot(errors.New("the name of the projection is empty"))
				}
				query.Set("name", args[0])
			} else if kind == "continuous" {
				return cannot(errors.New("a continuous projection needs a name: annals projection create NAME FILE"))
			}
			given(cmd, query, "type", "emit", "enabled", "checkpoints", "track-emitted-streams")
			script, err := readScript(stdin, args[len(args)-1])
			if err != nil {
				return err
			}
			return f.on(func(ctx context.Context, c *projectionClient) error {
				name, err := c.create(ctx, kind, query, script)
				if err != nil {
					return err
				}
				return c.outcome(ctx, stdout, name)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kind, "kind", kind, "continuous, onetime or transient")
	values(cmd, "kind", madeKinds...)
	flags.String("type", "JS", "the language of the script, or native: and the name of a handler in Go")
	flags.Bool("emit", false, "allow it to emit events")
	flags.Bool("enabled", true, "let it run at once")
	flags.Bool("checkpoints", false, "write checkpoints; a onetime projection needs them to emit")
	flags.Bool("track-emitted-streams", false, "keep a list of the streams that it emits to, so that they can be deleted with it")
	return cmd
}

// given makes parameters of the route from the flags that are set. For the others the
// node has defaults.
func given(cmd *cobra.Command, query url.Values, names ...string) {
	for _, name := range names {
		if flag := cmd.Flags().Lookup(name); flag.Changed {
			query.Set(strings.ReplaceAll(name, "-", ""), flag.Value.String())
		}
	}
}

func projectionUpdateCommand(f *projectionFlags, stdin io.Reader, stdout io.Writer) *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "update NAME [FILE]",
		Short: "Replace the script or the configuration of a projection",
		Long:  projectionUpdateHelp,
		Example: `  annals projection update orders orders.js
  annals projection show orders --config > config.json
  annals projection update orders --config config.json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{}
			given(cmd, query, "emit")
			var script, settings []byte
			var err error
			switch {
			case len(args) == 1 && config == "":
				return cannot(errors.New("nothing to replace: give the FILE of a script, or --config"))
			case len(args) == 1 && len(query) > 0:
				return cannot(errors.New("--emit needs the FILE of a script"))
			case len(args) == 2 && args[1] == "-" && config == "-":
				return cannot(errors.New("the script and the configuration cannot both be read from standard input"))
			}
			if config != "" {
				if settings, err = readScript(stdin, config); err != nil {
					return err
				}
			}
			if len(args) == 2 {
				if script, err = readScript(stdin, args[1]); err != nil {
					return err
				}
			}
			return f.onNamed(args[0], func(ctx context.Context, c *projectionClient, name string) error {
				if config != "" {
					if _, err := c.of(ctx, http.MethodPut, name, "/config", nil, &content{"application/json", settings}); err != nil {
						return err
					}
				}
				if len(args) == 2 {
					if _, err := c.of(ctx, http.MethodPut, name, "/query", query, &content{scriptType, script}); err != nil {
						return err
					}
				}
				return c.outcome(ctx, stdout, name)
			})
		},
	}
	cmd.Flags().Bool("emit", false, "allow it to emit events, or not (default as before)")
	cmd.Flags().StringVar(&config, "config", "", "file with the configuration, as JSON; - reads standard input")
	return cmd
}

// projectionDeedCommand is a command that the node has under the same name.
func projectionDeedCommand(f *projectionFlags, stdout io.Writer, deed, short, long string) *cobra.Command {
	confirm := atTerminal(os.Stderr)
	cmd := f.named(deed, short, long, func(ctx context.Context, c *projectionClient, name string) error {
		if deed == "reset" {
			if err := confirm.given(fmt.Sprintf("This forgets the state of the projection %s and truncates the streams that it emits to", visible(name))); err != nil {
				return err
			}
		}
		if _, err := c.of(ctx, http.MethodPost, name, "/command/"+deed, nil, nil); err != nil {
			return err
		}
		if deed == "enable" || deed == "reset" {
			return c.outcome(ctx, stdout, name)
		}
		p, err := c.statistics(ctx, name)
		if err != nil {
			return err
		}
		return p.printStatus(stdout, f.json)
	})
	if deed == "reset" {
		confirm.add(cmd.Flags())
	}
	return cmd
}

func projectionDeleteCommand(f *projectionFlags, stdout io.Writer) *cobra.Command {
	var flags *pflag.FlagSet
	confirm := atTerminal(os.Stderr)
	cmd := f.named("delete", "Delete a projection", projectionDeleteHelp, func(ctx context.Context, c *projectionClient, name string) error {
		if err := confirm.given(fmt.Sprintf("This deletes the projection %s", visible(name))); err != nil {
			return err
		}
		query := url.Values{}
		for flag, parameter := range map[string]string{
			"emitted-streams": "deleteEmittedStreams", "checkpoint-stream": "deleteCheckpointStream", "state-stream": "deleteStateStream",
		} {
			if given := flags.Lookup(flag); given.Changed {
				query.Set(parameter, given.Value.String())
			}
		}
		if _, err := c.of(ctx, http.MethodDelete, name, "", query, nil); err != nil {
			return err
		}
		if f.json {
			return printJSON(stdout, map[string]string{"name": name})
		}
		_, err := fmt.Fprintln(stdout, visible(name))
		return err
	})
	flags = cmd.Flags()
	flags.Bool("emitted-streams", false, "also delete the streams that it emitted to, if they were tracked")
	flags.Bool("checkpoint-stream", false, "also delete its checkpoints")
	flags.Bool("state-stream", false, "also delete its results")
	confirm.add(flags)
	return cmd
}

func projectionReadCommand(f *projectionFlags, stdout io.Writer, what, short, long string) *cobra.Command {
	var partition string
	long += "\n\nWith --json it is one member of an object. Another one is its position."
	cmd := f.named(what, short, long, func(ctx context.Context, c *projectionClient, name string) error {
		query := url.Values{}
		if partition != "" {
			query.Set("partition", partition)
		}
		answer, err := c.of(ctx, http.MethodGet, name, "/"+what, query, nil)
		if err != nil {
			return err
		}
		if f.json {
			return printRead(stdout, name, partition, what, answer)
		}
		return printLine(stdout, answer.Body)
	})
	cmd.Flags().StringVar(&partition, "partition", "", "the partition (default the root)")
	return cmd
}

func projectionQueryCommand(f *projectionFlags, stdout io.Writer) *cobra.Command {
	long := "Print the script of a projection as it was given, byte for byte. With --json print an\nobject that also has the definition."
	return f.named("query", "Print the script of a projection", long, func(ctx context.Context, c *projectionClient, name string) error {
		if f.json {
			return c.printOf(ctx, stdout, name, "/query", url.Values{"config": {"yes"}})
		}
		answer, err := c.of(ctx, http.MethodGet, name, "/query", nil, nil)
		if err != nil {
			return err
		}
		_, err = stdout.Write(answer.Body)
		return err
	})
}
