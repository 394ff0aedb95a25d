package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/client"
)

const groupHelp = `Show, make and change groups of consumers (persistent subscriptions): the cluster hands each
event of a stream to one of the consumers of a group.

You can ask any node: the request follows its redirect to the leader. A group is named by its
STREAM and its NAME. Most changes need an operator or administrator. Set the password in the
environment variable ANNALS_PASSWORD.`

const groupResetHelp = `Move a group to another place in what it reads. Events before the place that no consumer
acknowledged are left out, events after it come, even if they came before. Messages that
consumers hold at this moment are let go. Parked messages stay parked.

--to is start, end, the number of an event, a position (C:1234/P:1234), or a time
(2026-02-01T12:00:00Z). With --preview nothing is done.`

// groupFlags are what the commands below group have in common.
type groupFlags struct{ clusterFlags }

func groupCommand(stdout io.Writer) *cobra.Command {
	var f groupFlags
	root := group("group", "Show, make and change groups of consumers", groupHelp)
	f.add(root.PersistentFlags(), "address of a node of the cluster", "print JSON in place of text")
	root.AddCommand(
		groupListCommand(&f, stdout),
		f.named("show", "Show the settings and the state of a group", "", 0, func(ctx context.Context, g *groupClient, _ []string) error {
			return g.show(ctx, stdout)
		}),
		groupDefineCommand(&f, stdout, false),
		groupDefineCommand(&f, stdout, true),
		f.deed(stdout, "pause", "Let a group hand out nothing until it is resumed", "was paused", (*client.Group).Pause),
		f.deed(stdout, "resume", "Let a paused group hand out messages again", "was resumed", (*client.Group).Resume),
		groupResetCommand(&f, stdout),
		groupDeleteCommand(&f, stdout),
		parkedCommand(&f, stdout),
	)
	return root
}

// groupClient asks a node about a group, and the leader after it.
type groupClient struct {
	*nodeClient
	*client.Group
	stream, name string
}

func (g *groupClient) String() string { return visible(g.stream + "::" + g.name) }

// path is the address of something of the group.
func (g *groupClient) path(below string) string {
	return "/subscriptions/" + url.PathEscape(g.stream) + "/" + url.PathEscape(g.name) + below
}

// named makes a command about the group that its first two arguments name. It has more arguments
// after these, or any number if more is negative.
func (f *groupFlags) named(use, short, long string, more int, do func(ctx context.Context, g *groupClient, args []string) error) *cobra.Command {
	word, rest, _ := strings.Cut(use, " ")
	count := cobra.ExactArgs(2 + more)
	if more < 0 {
		count = cobra.MinimumNArgs(2)
	}
	return &cobra.Command{
		Use: strings.TrimSpace(word + " STREAM NAME " + rest), Short: short, Long: long, Args: count,
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "" || args[1] == "" {
				return cannot(errors.New("STREAM and NAME must not be empty"))
			}
			return f.on(func(ctx context.Context, c *nodeClient) error {
				g := &groupClient{c, c.Client.Group(args[0], args[1]), args[0], args[1]}
				err := do(ctx, g, args[2:])
				if _, isUnsure := errors.AsType[*client.UnreachableError](err); isUnsure {
					err = fmt.Errorf("%w; see what was done with annals group show%s", err, c.nodeFlag())
				}
				if client.HasStatus(err, http.StatusNotFound) && !strings.Contains(err.Error(), "is not parked") {
					return fmt.Errorf("there is no group %q of the stream %q", args[1], args[0])
				}
				return c.explain(err)
			})
		},
	}
}

// done says what was done.
func (g *groupClient) done(w io.Writer, what string) error {
	if g.flags.json {
		return printJSON(w, map[string]string{"stream": g.stream, "group": g.name})
	}
	_, err := fmt.Fprintf(w, "%s %s\n", g, what)
	return err
}

// deed is a command without an answer.
func (f *groupFlags) deed(stdout io.Writer, use, short, what string, do func(*client.Group, context.Context) error) *cobra.Command {
	return f.named(use, short, "", 0, func(ctx context.Context, g *groupClient, _ []string) error {
		if err := do(g.Group, ctx); err != nil {
			return err
		}
		return g.done(stdout, what)
	})
}

// placedGroup is a group with its places in what it reads, which are positions where it reads $all;
// nil: there is none.
type placedGroup struct {
	client.GroupInfo
	Checkpoint *string        `json:"lastCheckpointedEventPosition"`
	Last       *string        `json:"lastKnownEventPosition"`
	Config     map[string]any `json:"config"`
}

func placeText(place *string) string {
	none := "-"
	return *cmp.Or(place, &none)
}

func groupListCommand(f *groupFlags, stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "list [STREAM]", Short: "List the groups, or those of a stream", Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return f.on(func(ctx context.Context, c *nodeClient) error {
				path := "/subscriptions"
				if stream := append(args, "")[0]; stream != "" {
					path += "/" + url.PathEscape(stream)
				}
				var whole []json.RawMessage
				if err := c.Call(ctx, http.MethodGet, path, nil, &whole); err != nil && !client.HasStatus(err, http.StatusNotFound) {
					return c.explain(err)
				}
				if f.json {
					return printJSON(stdout, whole)
				}
				var t table
				t.row("STREAM\tNAME\tSTATUS\tCHECKPOINT\tLAST EVENT\tUNANSWERED")
				for _, one := range whole {
					var g placedGroup
					if err := json.Unmarshal(one, &g); err != nil {
						return fmt.Errorf("read the answer: %w", err)
					}
					t.row("%s\t%s\t%s\t%s\t%s\t%d", visible(g.Stream), visible(g.Name), g.Status, placeText(g.Checkpoint), placeText(g.Last), g.Unanswered)
				}
				return t.print(stdout)
			})
		},
	}
}

// show prints all that is known of a group.
func (g *groupClient) show(ctx context.Context, stdout io.Writer) error {
	a, err := g.Repeat(ctx, client.Request{Path: g.path("/info"), Header: map[string]string{"Accept": client.MediaJSON}})
	switch {
	case err != nil:
		return err
	case g.flags.json:
		return printIndented(stdout, a.Body)
	}
	var i placedGroup
	if err := a.Decode(&i); err != nil {
		return err
	}
	if b, ok := i.Config[backoffMember].(map[string]any); ok {
		i.Config[backoffMember], i.Config[limitMember] = b["factor"], b[limitMember]
	}
	var t table
	for _, row := range []struct {
		name  string
		value any
	}{
		{"stream", visible(i.Stream)}, {"name", visible(i.Name)}, {"status", i.Status}, {"stalled", i.Stalled},
		{"checkpoint", placeText(i.Checkpoint)}, {"last event", placeText(i.Last)},
		{"handed out", i.Processed}, {"unanswered", i.Unanswered}, {"read ahead", i.ReadAhead}, {"to be retried", i.Retrying},
		{"of those delayed", i.Delayed}, {"parked", i.Parked}, {"consumers over gRPC", len(i.Connections)},
	} {
		if row.value != "" {
			t.row("%s\t%v", row.name, row.value)
		}
	}
	if p := i.Paused; p != nil {
		t.row("paused\tby %s at %s", visible(p.By), p.At.UTC().Format(time.DateTime))
	}
	if r := i.Replaying; r != nil {
		t.row("being replayed\t%d remain, %d a second", r.Remaining, r.PerSecond)
	}
	for _, s := range groupSettings {
		v := i.Config[s.member]
		if v == nil {
			continue
		}
		text, err := s.text(v)
		if err != nil {
			return err
		}
		t.row("%s\t%s", s.flag, visible(text))
	}
	return t.print(stdout)
}

func groupResetCommand(f *groupFlags, stdout io.Writer) *cobra.Command {
	var to string
	var isPreview bool
	confirm := atTerminal(os.Stderr)
	cmd := f.named("reset", "Move a group to another place", groupResetHelp, 0, func(ctx context.Context, g *groupClient, _ []string) error {
		if to == "" {
			return cannot(errors.New("--to is missing: start, end, a number, a position or a time"))
		}
		r, err := g.PreviewReset(ctx, to)
		if err != nil {
			return err
		}
		if !isPreview {
			if err := confirm.given(fmt.Sprintf("This moves the group %s from %s", g, resetText(&r))); err != nil {
				return err
			}
			if r, err = g.Reset(ctx, to); err != nil {
				return err
			}
		}
		if f.json {
			return printJSON(stdout, r)
		}
		_, err = fmt.Fprintf(stdout, "from %s\n", resetText(&r))
		return err
	})
	cmd.Example = "  annals group reset orders billing --to 2026-02-01T12:00:00Z --preview\n  annals group reset orders billing --to 1200"
	cmd.Flags().StringVar(&to, "to", "", "the place: start, end, a number, a position or a time")
	cmd.Flags().BoolVar(&isPreview, "preview", false, "only say what would come of it")
	confirm.add(cmd.Flags())
	return cmd
}

func resetText(r *client.GroupReset) string {
	least := ""
	if r.AtLeast {
		least = "at least "
	}
	return fmt.Sprintf("%s to %s: events that come again: %s%d; left out: %d", r.From, r.To, least, r.Again, r.LeftOut)
}

func groupDeleteCommand(f *groupFlags, stdout io.Writer) *cobra.Command {
	confirm := atTerminal(os.Stderr)
	cmd := f.named("delete", "Delete a group with its parked messages", "", 0, func(ctx context.Context, g *groupClient, _ []string) error {
		if err := confirm.given(fmt.Sprintf("This deletes the group %s and its parked messages", g)); err != nil {
			return err
		}
		if err := g.Call(ctx, http.MethodDelete, g.path(""), nil, nil); err != nil {
			return err
		}
		return g.done(stdout, "was deleted")
	})
	confirm.add(cmd.Flags())
	return cmd
}
