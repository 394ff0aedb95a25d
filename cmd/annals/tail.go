package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/client"
)

const tailHelp = `Print the events of a stream as they are written, one line each. The stream $all has those of all
streams. It goes on after restarts of a node and changes of the leader, on any node of the cluster.

A place (--from, --to) is start, end, an event number, of $all a position of 32 digits, or a time as in
2026-01-31T12:00:00Z.`

func tailCommand(stdout io.Writer) *cobra.Command {
	var f clusterFlags
	query := url.Values{}
	cmd := &cobra.Command{
		Use:   "tail STREAM",
		Short: "Print events as they are written",
		Long:  tailHelp,
		Example: `  annals tail orders-1 --from start
  annals tail '$all' --types Order --system=false --json`,
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	f.add(flags, "address of a node", "print an event as the node sends it, a JSON object")
	named := map[string]string{
		"from": "place to begin at (default end)", "to": "place of the last event; end stops when all that is there was printed",
		"limit": "most events to print", "types": "event types to print: prefixes separated by commas, or an expression between slashes",
		"streams": "the same for streams, of $all", "contains": "text within data or metadata", "id": "id of the event to print", "max-data": "bytes of data to print of an event",
	}
	for name, usage := range named {
		flags.String(name, "", usage)
	}
	toggles := map[string]string{
		"backward": "print the newest first, down to --to", "system": "print what begins with $ (default true)", "resolve": "print the events that links name (default true, of $all false)",
	}
	for name, usage := range toggles {
		flags.Bool(name, name == "system", usage)
		flags.Lookup(name).DefValue = "false" // The text says it.
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, set := range []map[string]string{named, toggles} {
			for name := range set {
				if flag := flags.Lookup(name); flag.Changed {
					query.Set(strings.Replace(name, "max-data", "maxData", 1), flag.Value.String())
				}
			}
		}
		return f.on(func(ctx context.Context, c *nodeClient) error {
			return c.tail(ctx, stdout, args[0], query.Encode(), f.json)
		})
	}
	return cmd
}

func (c *nodeClient) tail(ctx context.Context, stdout io.Writer, stream, query string, asJSON bool) error {
	// A node that is away for now is not needed: any other will do.
	if err := c.Discover(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "annals: the other nodes are not known: %v\n", c.explain(err))
	}
	for m, err := range c.Tail(ctx, stream, query) {
		if err != nil {
			return c.explain(err)
		}
		if err := printMessage(stdout, m, asJSON); err != nil {
			return err
		}
	}
	return nil
}

// tailed is what a line shows of an event.
type tailed struct {
	Title, Updated, Summary, Data string
}

func printMessage(w io.Writer, m client.TailMessage, isJSON bool) error {
	switch {
	case m.Kind == "gone" || m.Kind == "denied" || m.Kind == "deleted":
		_, err := fmt.Fprintf(os.Stderr, "annals: %s\n", map[string]string{
			"gone": "the stream was deleted for ever", "denied": "the right to read was withdrawn", "deleted": "the stream was deleted"}[m.Kind])
		return err
	case m.Kind != "":
		return nil
	case isJSON:
		_, err := fmt.Fprintf(w, "%s\n", m.Data)
		return err
	}
	var e tailed
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return fmt.Errorf("read an event: %w", err)
	}
	_, err := fmt.Fprintf(w, "%s  %s  %s  %s\n", visible(e.Updated), visible(e.Title), visible(e.Summary), visible(e.Data))
	return err
}
