package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/client"
)

const tailHelp = `Print the events of a stream as they are written, one line each. The stream $all has those of all
streams. The command keeps printing after restarts of a node and changes of the leader, from any
node of the cluster.

If the stream does not exist or is deleted, a line on standard error says so. Without --to the
command then waits for the next event; with --to the exit code is 0. A stream that is deleted for
ever is exit code 1.

A place (--from, --to) is start, end, an event number, of $all a position of 32 digits, or a time
as in 2026-01-31T12:00:00Z.`

func tailCommand(stdout, stderr io.Writer) *cobra.Command {
	var f clusterFlags
	var t tailFlags
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
	t.add(flags)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		o := t.options(flags)
		return f.on(func(ctx context.Context, c *nodeClient) error {
			return c.tail(ctx, stdout, stderr, args[0], o, f.json)
		})
	}
	return cmd
}

// tailFlags are the flags of annals tail.
type tailFlags struct {
	from, to, types, streams, contains, id string
	limit, maxData                         int
	backward, system, resolve              bool
}

func (t *tailFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&t.from, "from", "", "place to begin at (default end)")
	flags.StringVar(&t.to, "to", "", "place of the last event; end stops at the present end of the stream")
	flags.IntVar(&t.limit, "limit", 0, "most events to print")
	flags.StringVar(&t.types, "types", "", "event types to print: prefixes separated by commas, or an expression between slashes")
	flags.StringVar(&t.streams, "streams", "", "the same for streams, of $all")
	flags.StringVar(&t.contains, "contains", "", "text within data or metadata")
	flags.StringVar(&t.id, "id", "", "id of the event to print")
	flags.IntVar(&t.maxData, "max-data", 0, "bytes of data to print of an event")
	flags.BoolVar(&t.backward, "backward", false, "print the newest first, down to --to")
	flags.BoolVar(&t.system, "system", true, "print events whose type or stream begins with $ (default true)")
	flags.BoolVar(&t.resolve, "resolve", false, "print the events that links name (default true, of $all false)")
	flags.Lookup("system").DefValue = "false" // The text says it.
}

func (t *tailFlags) options(flags *pflag.FlagSet) client.TailOptions {
	o := client.TailOptions{
		From: client.Place(cmp.Or(t.from, string(client.End))), To: client.Place(t.to), Backward: t.backward, Limit: t.limit,
		Contains: t.contains, EventID: t.id, NoSystem: !t.system, MaxData: t.maxData,
	}
	o.Types, o.TypesLike = namesFlag(t.types)
	o.Streams, o.StreamsLike = namesFlag(t.streams)
	if flags.Changed("resolve") {
		o.Resolve = &t.resolve
	}
	if flags.Changed("max-data") && t.maxData == 0 {
		o.MaxData = -1
	}
	return o
}

// namesFlag reads prefixes separated by commas, or an expression between slashes.
func namesFlag(text string) (prefixes []string, like string) {
	if len(text) > 2 && text[0] == '/' && text[len(text)-1] == '/' {
		return nil, text[1 : len(text)-1]
	}
	if text == "" {
		return nil, ""
	}
	for prefix := range strings.SplitSeq(text, ",") {
		prefixes = append(prefixes, strings.TrimSpace(prefix))
	}
	return prefixes, ""
}

func (c *nodeClient) tail(ctx context.Context, stdout, stderr io.Writer, stream string, o client.TailOptions, asJSON bool) error {
	// A node that does not answer now is not needed: any other will do.
	unknown := c.Discover(ctx)
	looked := false // for what was deleted or is missing
	for m, err := range c.Tail(ctx, stream, o) {
		if errors.Is(err, client.ErrDeleted) {
			return fmt.Errorf("the stream %q is deleted for ever", stream)
		}
		if err != nil {
			return c.explain(err) // That of unknown is the same one, or matters less.
		}
		if unknown != nil {
			complain(stderr, fmt.Errorf("the other nodes are not known: %w", c.explain(unknown)))
			unknown = nil
		}
		if !looked && m.Kind == client.KindLive {
			c.tellMissing(ctx, stderr, stream)
		}
		looked = looked || m.Kind != client.KindProgress && m.Kind != client.KindEnd
		if err := printMessage(stdout, stderr, m, asJSON); err != nil {
			return err
		}
	}
	if !looked && ctx.Err() == nil {
		c.tellMissing(ctx, stderr, stream)
	}
	return nil
}

// softDeleted is the $tb of a stream that was deleted, not for ever.
const softDeleted = math.MaxInt64

// tellMissing says so if there is no such stream, which is no error: a tail may wait for one.
func (c *nodeClient) tellMissing(ctx context.Context, stderr io.Writer, stream string) {
	if stream == client.AllStream {
		return
	}
	_, err := c.Read(ctx, stream, client.Reading{Backward: true, Count: 1})
	if !errors.Is(err, client.ErrNotFound) {
		return
	}
	var metadata struct {
		Before int64 `json:"$tb"`
	}
	state := "does not exist"
	// Without the right to read the metadata, it does not exist as far as the user sees.
	if err := c.Metadata(ctx, stream, &metadata); err == nil && metadata.Before == softDeleted {
		state = "is deleted"
	}
	complain(stderr, fmt.Errorf("the stream %q %s", stream, state))
}

// tailed is what a line shows of an event.
type tailed struct {
	Title, Updated, Summary, Data string
}

func printMessage(w, stderr io.Writer, m client.TailMessage, isJSON bool) error {
	switch {
	case m.Kind == client.KindGone || m.Kind == client.KindDenied || m.Kind == client.KindDeleted:
		_, err := fmt.Fprintf(stderr, "annals: %s\n", map[string]string{
			client.KindGone: "the stream was deleted for ever", client.KindDenied: "the right to read was withdrawn", client.KindDeleted: "the stream was deleted"}[m.Kind])
		return err
	case m.Kind != client.KindEvent:
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
