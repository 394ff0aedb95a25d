package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/client"
)

const queryHelp = `Print the events of all streams that match, one line each: position, time, number and stream, type
and data. The last line has the position up to which the log was looked at. An append can require
that nothing that matches came after it: annals append with a condition.

Names are exact, separated by commas. All flags that choose events must match.

With --explain the lines before the last one say which lists of the index were read, and how many
events were looked at.

With --follow the command keeps printing events as they are written, after restarts of a node and
changes of the leader too. There is no last line then.`

func queryCommand(stdout, stderr io.Writer) *cobra.Command {
	var f clusterFlags
	var q queryFlags
	cmd := &cobra.Command{
		Use:   "query",
		Short: "Print events by type, tag, category, stream and correlation",
		Long:  queryHelp,
		Example: `  annals query --types SeatTaken,SeatFreed --tags show:7,seat:12
  annals query --categories account --backward --limit 10
  annals query --tags owner:ann --after 8812 --follow --json`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	f.add(flags, "address of a node", "print events as the node sends them, JSON objects")
	q.add(flags)
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := q.check(flags); err != nil {
			return cannot(err)
		}
		return f.on(func(ctx context.Context, c *nodeClient) error {
			if q.follow {
				return c.followQuery(ctx, stdout, stderr, &q, f.json)
			}
			return c.query(ctx, stdout, &q, f.json)
		})
	}
	return cmd
}

// queryFlags are the flags of annals query.
type queryFlags struct {
	item             client.QueryItem
	position         int64
	after            *int64 // position, if it was given
	limit            int
	backward, follow bool
	explain          bool
}

func (q *queryFlags) add(flags *pflag.FlagSet) {
	for _, list := range []struct {
		to          *[]string
		name, usage string
	}{
		{&q.item.Types, "types", "events of one of these types"},
		{&q.item.Tags, "tags", "events that have all of these tags"},
		{&q.item.Categories, "categories", "events of streams of one of these categories"},
		{&q.item.Streams, "streams", "events of one of these streams"},
	} {
		flags.StringSliceVar(list.to, list.name, nil, list.usage)
	}
	flags.StringVar(&q.item.Correlation, "correlation", "", "events with this correlation id")
	flags.Int64Var(&q.position, "after", 0, "only events at higher positions (default: all)")
	flags.IntVar(&q.limit, "limit", 0, "most events to print")
	flags.BoolVar(&q.backward, "backward", false, "print the newest first")
	flags.BoolVar(&q.follow, "follow", false, "keep printing what is written")
	flags.BoolVar(&q.explain, "explain", false, "print which lists of the index were read, and how far")
}

// check says what is wrong with the flags.
func (q *queryFlags) check(flags *pflag.FlagSet) error {
	if flags.Changed("after") {
		q.after = &q.position
	}
	i := &q.item
	switch {
	case len(i.Types)+len(i.Tags)+len(i.Categories)+len(i.Streams) == 0 && i.Correlation == "":
		return errors.New("say which events: --types, --tags, --categories, --streams or --correlation")
	case q.limit < 0 || q.position < 0:
		return errors.New("--limit and --after are not negative")
	case q.follow && (q.backward || q.explain):
		return errors.New("--follow excludes --backward and --explain")
	}
	return nil
}

// query prints what is there, and the position.
func (c *nodeClient) query(ctx context.Context, stdout io.Writer, q *queryFlags, asJSON bool) error {
	o := client.QueryOptions{After: q.after, Backward: q.backward, Explain: q.explain, Count: client.PageLimit}
	if q.limit > 0 {
		o.Count = min(q.limit, client.PageLimit)
	}
	var position *int64
	var plan *client.QueryPlan
	printed := 0
	for p, err := range c.QueryPages(ctx, client.Query{Items: []client.QueryItem{q.item}}, o) {
		if err != nil {
			return c.explain(err)
		}
		if position = p.Position; plan == nil {
			plan = p.Explain
		} else {
			addPlan(plan, p.Explain)
		}
		for i := range p.Events {
			if q.limit > 0 && printed == q.limit {
				break
			}
			if err := printFound(stdout, &p.Events[i], asJSON); err != nil {
				return err
			}
			printed++
		}
		if q.limit > 0 && printed == q.limit {
			break
		}
	}
	if plan != nil {
		if err := printPlan(stdout, plan, asJSON); err != nil {
			return err
		}
	}
	text := "none" // The log is empty.
	if asJSON {
		text = "null"
	}
	if position != nil {
		text = strconv.FormatInt(*position, 10)
	}
	form := "position %s\n"
	if asJSON {
		form = "{\"position\":%s}\n"
	}
	_, err := fmt.Fprintf(stdout, form, text)
	return err
}

// addPlan adds what another page took, if it tells.
func addPlan(to, more *client.QueryPlan) {
	if more == nil {
		return
	}
	to.Looked += more.Looked
	if len(to.Lists) == 0 {
		to.Lists = more.Lists
		return
	}
	for i := range more.Lists {
		to.Lists[i].Postings += more.Lists[i].Postings
	}
}

// printPlan prints how events were found.
func printPlan(w io.Writer, plan *client.QueryPlan, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(map[string]any{"explain": plan})
	}
	for _, l := range plan.Lists {
		if _, err := fmt.Fprintf(w, "%s %s: %d postings read\n", l.Kind, visible(l.Name), l.Postings); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d events looked at\n", plan.Looked)
	return err
}

// printFound prints an event on a line.
func printFound(w io.Writer, e *client.Found, asJSON bool) error {
	if asJSON {
		lines := json.NewEncoder(w)
		lines.SetEscapeHTML(false)
		return lines.Encode(e)
	}
	data := visible(string(e.Data))
	switch {
	case e.Redacted:
		data = "redacted"
	case e.Data == nil:
		data = fmt.Sprintf("%d bytes", len(e.DataBytes))
	}
	_, err := fmt.Fprintf(w, "%d  %s  %s  %s  %s\n",
		e.Position, e.Created.Format(time.RFC3339Nano), visible(fmt.Sprintf("%d@%s", e.Number, e.Stream)), visible(e.Type), data)
	return err
}

// followQuery prints what is there and what is written, until the limit.
func (c *nodeClient) followQuery(ctx context.Context, stdout, stderr io.Writer, q *queryFlags, asJSON bool) error {
	// A node that does not answer now is not needed: any other will do.
	unknown := c.Discover(ctx)
	left := q.limit
	for m, err := range c.TailQuery(ctx, q.item, q.after) {
		if err != nil {
			return c.explain(err)
		}
		if unknown != nil {
			complain(stderr, fmt.Errorf("the other nodes are not known: %w", c.explain(unknown)))
			unknown = nil
		}
		if m.Kind == client.KindEvent && !asJSON {
			if _, err := fmt.Fprintf(stdout, "%s  ", m.ID); err != nil {
				return err
			}
		}
		if err := printMessage(stdout, stderr, m, asJSON); err != nil {
			return err
		}
		if m.Kind == client.KindEvent {
			if left--; left == 0 {
				return nil
			}
		}
	}
	return nil
}
