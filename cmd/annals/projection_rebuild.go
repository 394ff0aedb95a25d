package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

const projectionRebuildHelp = `Begin a second version of a continuous projection, with another script. It runs next to the
projection, reads all events from the start, and emits nothing. When it has caught up, see
how the states differ with rebuild-status --compare, and let it take over with swap.

--wait waits until it has caught up, --swap-when-ready also lets it take over. - in place of
the FILE reads standard input.

Exit codes: 0 success, 1 it was not begun, 2 bad arguments, 3 it has faulted.`

const projectionRebuildStatusHelp = `Show the second version of a projection: how far it has read, and why it has faulted.

--compare compares its states with those of the projection first, where both have a
checkpoint, and prints the names of partitions that differ. --states also prints the states,
as JSON.`

const projectionSwapHelp = `Let the second version of a projection take over, in one step. The projection stops for a
moment, and the second version continues where it stopped. No event is emitted twice, and
none is left out. Ended by a change of the leader, the command can be repeated.

Exit codes: 0 success, 1 nothing was swapped, 3 it was swapped and has faulted.`

// rebuildPause is the time between two looks at a rebuild that is waited for.
const rebuildPause = 500 * time.Millisecond

// rebuild returns the second version of a projection. It is an error that it has faulted.
func (c *projectionClient) rebuild(ctx context.Context, name string, query url.Values) (r client.ProjectionRebuild, whole []byte, err error) {
	answer, err := c.of(ctx, http.MethodGet, name, "/rebuild", query, nil)
	if err != nil {
		return r, nil, err
	}
	if err := json.Unmarshal(answer.Body, &r); err != nil {
		return r, nil, fmt.Errorf("read the answer of %s: %w", answer.Host(), err)
	}
	if r.Status == "Faulted" {
		err = &codedError{code: exitFaulted, err: fmt.Errorf("the rebuild of projection %q has faulted: %s", r.Name, visible(r.Fault))}
	}
	return r, answer.Body, err
}

// printRebuild prints the second version of a projection.
func printRebuild(w io.Writer, r *client.ProjectionRebuild, whole []byte, asJSON bool) error {
	if asJSON {
		return printIndented(w, whole)
	}
	var t table
	t.row("%s\t%s  %.1f%%", visible(r.Name), r.Status, max(0, r.Progress))
	if c := r.Comparison; c != nil {
		t.row("compared\t%d", c.Compared)
		t.row("differing\t%d", c.Differing)
		t.row("moved\t%d", c.Moved)
		if !c.Complete {
			t.row("the rest was not compared, as the time was up")
		}
		for i := range c.Partitions {
			t.row("differs\t%q", c.Partitions[i].Partition)
		}
	}
	return t.print(w)
}

// swap lets the second version of a projection take over.
func (c *projectionClient) swap(ctx context.Context, stdout io.Writer, name string) error {
	if _, err := c.of(ctx, http.MethodPost, name, "/rebuild/swap", nil, nil); err != nil {
		return err
	}
	return c.outcome(ctx, stdout, name)
}

func projectionRebuildCommand(f *projectionFlags, stdin io.Reader, stdout io.Writer) *cobra.Command {
	var file string
	var wait, swap bool
	cmd := &cobra.Command{
		Use: "rebuild NAME --query FILE", Short: "Begin a second version of a projection", Long: projectionRebuildHelp,
		Example: `  annals projection rebuild orders --query orders.js --wait
  annals projection rebuild-status orders --compare
  annals projection swap orders`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return cannot(errors.New("--query is missing: the FILE of the script"))
			}
			query := url.Values{}
			given(cmd, query, "emit")
			script, err := readScript(stdin, file)
			if err != nil {
				return err
			}
			return f.onNamed(args[0], func(ctx context.Context, c *projectionClient, name string) error {
				if _, err := c.of(ctx, http.MethodPost, name, "/rebuild", query, &content{scriptType, script}); err != nil {
					return err
				}
				r, whole, err := c.rebuild(ctx, name, nil)
				for (wait || swap) && err == nil && r.Status == "Running" {
					if err = clock.Sleep(ctx, rebuildPause); err == nil {
						r, whole, err = c.rebuild(ctx, name, nil)
					}
				}
				switch {
				case err != nil:
					return err
				case swap:
					return c.swap(ctx, stdout, name)
				}
				return printRebuild(stdout, &r, whole, f.json)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "query", "", "file with the script; - reads standard input")
	flags.Bool("emit", false, "allow it to emit events once it took over, or not (default as before)")
	flags.BoolVar(&wait, "wait", false, "wait until it has caught up")
	flags.BoolVar(&swap, "swap-when-ready", false, "wait, and let it take over")
	return cmd
}

func projectionRebuildStatusCommand(f *projectionFlags, stdout io.Writer) *cobra.Command {
	var compare, states bool
	cmd := f.named("rebuild-status", "Show the second version of a projection", projectionRebuildStatusHelp, func(ctx context.Context, c *projectionClient, name string) error {
		query := url.Values{}
		for parameter, on := range map[string]bool{"compare": compare, "states": states} {
			if on {
				query.Set(parameter, "yes")
			}
		}
		r, whole, err := c.rebuild(ctx, name, query)
		if whole == nil {
			return err
		}
		if broken := printRebuild(stdout, &r, whole, f.json || states); broken != nil {
			return broken
		}
		return err
	})
	cmd.Flags().BoolVar(&compare, "compare", false, "compare its states with those of the projection first")
	cmd.Flags().BoolVar(&states, "states", false, "also print the states that differ, as JSON")
	return cmd
}

func projectionRebuildAbortCommand(f *projectionFlags, stdout io.Writer) *cobra.Command {
	return f.named("rebuild-abort", "End the second version of a projection", "End the second version of a projection, which is then gone. The projection continues.", func(ctx context.Context, c *projectionClient, name string) error {
		if _, err := c.of(ctx, http.MethodDelete, name, "/rebuild", nil, nil); err != nil {
			return err
		}
		if f.json {
			return printJSON(stdout, map[string]string{"name": name})
		}
		_, err := fmt.Fprintf(stdout, "%s  rebuild ended\n", visible(name))
		return err
	})
}
