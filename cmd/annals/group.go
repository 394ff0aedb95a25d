package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/client"
)

const groupHelp = `Show, make and change groups of consumers (persistent subscriptions): the cluster hands each
event of a stream to one of the consumers of a group.

You can ask any node: the request follows its redirect to the leader. A group is named by its
STREAM and its NAME. Most changes need an operator or administrator. Set the password in the
environment variable ANNALS_PASSWORD.`

const groupUpdateHelp = `Change settings of a group. Those that no flag names stay as they are.

The group is loaded again from its last checkpoint, and its consumers connect again. With
another --source or --filter it keeps its place in the log.`

const groupResetHelp = `Move a group to another place in what it reads. Events before the place that no consumer
acknowledged are left out, events after it come, even if they came before. Messages that
consumers hold at this moment are let go. Parked messages stay parked.

--to is start, end, the number of an event, a position (C:1234/P:1234), or a time
(2026-02-01T12:00:00Z). With --preview nothing is done.`

const parkedForwardHelp = `Append copies of parked messages to the stream TO, and take the messages out of the parked
ones: those with the NUMBERS, or all. No message is copied twice, so the command can be
repeated when it fails. You need the right to append to the stream, too.`

const parkedReplayHelp = `Hand parked messages out again: those with the NUMBERS, or all. With --rate so many a second
are; if such a replay is not done yet, the command changes its rate.`

// groupFlags are what the commands below group have in common.
type groupFlags struct{ clusterFlags }

func groupCommand(stdout io.Writer) *cobra.Command {
	var f groupFlags
	root := group("group", "Show, make and change groups of consumers", groupHelp)
	f.add(root.PersistentFlags(), "address of a node of the cluster", "print JSON in place of text")
	parked := group("parked", "Look at parked messages, and hand them on", "Look at the messages that a group gave up, and hand them on.")
	parked.AddCommand(
		parkedListCommand(&f, stdout),
		parkedForwardCommand(&f, stdout),
		parkedReplayCommand(&f, stdout),
		parkedDropCommand(&f, stdout),
	)
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
		parked,
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

// backoffMember is a setting with a member limitMember of its own; on the command line both are
// flags.
const (
	backoffMember = "retryBackoff"
	limitMember   = "atMostMilliseconds"
)

// groupSetting is the flag of a setting, and how the wire has it: a duration in milliseconds.
type groupSetting struct {
	flag, member string
	absent       any // the type of the flag
	usage        string
}

// text returns the value that the wire has as one would give it to the flag.
func (s *groupSetting) text(v any) (string, error) {
	if ms, ok := v.(float64); ok && s.absent == time.Duration(0) {
		return (time.Duration(ms) * time.Millisecond).String(), nil
	}
	text, err := json.Marshal(v)
	if err != nil || s.member != "filter" {
		return strings.Trim(string(text), `"`), err
	}
	var f client.GroupFilter
	if err := json.Unmarshal(text, &f); err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	if f.Regex != "" {
		return f.Of + ":/" + f.Regex + "/", nil
	}
	return f.Of + ":" + strings.Join(f.Prefixes, ","), nil
}

var groupSettings = []groupSetting{
	{"start-from", "startFrom", int64(0), "number of the first event, of $all a position; -1 for events that are appended from now on"},
	{"resolve-links", "resolveLinktos", false, "hand out the events that links lead to"},
	{"strategy", "namedConsumerStrategy", "", "RoundRobin, DispatchToSingle, Pinned or PinnedByCorrelation"},
	{"message-timeout", "messageTimeoutMilliseconds", time.Duration(0), "time for an answer (default 10s)"},
	{"max-retries", "maxRetryCount", int64(0), "times that a message is tried again before it is parked (default 10)"},
	{"retry-delay", "retryDelayMilliseconds", time.Duration(0), "wait before a message is tried again"},
	{"retry-backoff", backoffMember, float64(0), "factor by which the delay grows with each retry; 0 for a delay that stays the same"},
	{"retry-delay-at-most", limitMember, time.Duration(0), "longest delay that --retry-backoff leads to (default 1m, or --retry-delay if that is longer)"},
	{"buffer-size", "bufferSize", int64(0), "events that are read ahead (default 500)"},
	{"read-batch-size", "readBatchSize", int64(0), "events that are read at once (default 20)"},
	{"checkpoint-after", "checkPointAfterMilliseconds", time.Duration(0), "least time between checkpoints (default 1s)"},
	{"min-checkpoint-count", "minCheckPointCount", int64(0), "answers that are worth a checkpoint by time (default 10)"},
	{"max-checkpoint-count", "maxCheckPointCount", int64(0), "answers after which a checkpoint is written (default 500)"},
	{"checkpoint-at-least-every", "checkpointAtLeastEveryMilliseconds", time.Duration(0), "time after which few answers get a checkpoint too"},
	{"max-subscribers", "maxSubscriberCount", int64(0), "consumers over gRPC, 0 for any number (default 10)"},
	{"source", "source", "", "what it reads in place of its own stream: another one, $all or an index"},
	{"filter", "filter", "", "of $all: stream:PREFIX,PREFIX or type:PREFIX, or with a regular expression stream:/EXPRESSION/; none takes it away"},
}

// givenSettings returns the settings that flags name, as the wire has them.
func givenSettings(flags *pflag.FlagSet) (map[string]any, error) {
	in := map[string]any{}
	for _, s := range groupSettings {
		flag := flags.Lookup(s.flag)
		if !flag.Changed {
			continue
		}
		text := flag.Value.String()
		switch s.absent.(type) {
		case string:
			in[s.member] = text
		case time.Duration:
			d, err := time.ParseDuration(text)
			if err != nil {
				return nil, cannot(err)
			}
			if d%time.Millisecond != 0 {
				return nil, cannot(fmt.Errorf("--%s %s is not in whole milliseconds", s.flag, d))
			}
			in[s.member] = d.Milliseconds()
		default:
			in[s.member] = json.RawMessage(text)
		}
		if s.member == "filter" {
			filter, err := filterOf(text)
			if err != nil {
				return nil, cannot(err)
			}
			in[s.member] = filter
		}
	}
	backoff := map[string]any{}
	if limit, ok := in[limitMember]; ok {
		backoff[limitMember] = limit
		delete(in, limitMember)
	}
	if factor, ok := in[backoffMember]; ok {
		backoff["factor"] = factor
	}
	if len(backoff) > 0 {
		in[backoffMember] = backoff
	}
	if factor, err := flags.GetFloat64("retry-backoff"); err == nil && factor == 0 && flags.Changed("retry-backoff") {
		in[backoffMember] = nil
	}
	return in, nil
}

// filterOf reads a filter.
func filterOf(text string) (f client.GroupFilter, err error) {
	of, names, ok := strings.Cut(text, ":")
	switch {
	case text == "none":
		return f, nil
	case !ok || names == "" || of != "stream" && of != "type":
		return f, fmt.Errorf("--filter %q is neither none nor stream: or type: with prefixes or /expression/", text)
	}
	f.Of = of
	if len(names) > 2 && names[0] == '/' && names[len(names)-1] == '/' {
		f.Regex = names[1 : len(names)-1]
	} else {
		f.Prefixes = strings.Split(names, ",")
	}
	return f, nil
}

// groupDefineCommand makes or changes a group.
func groupDefineCommand(f *groupFlags, stdout io.Writer, isUpdate bool) *cobra.Command {
	var cmd *cobra.Command
	use, short, long, method, what := "create", "Make a group", "", http.MethodPut, "was made"
	if isUpdate {
		use, short, long, method, what = "update", "Change settings of a group", groupUpdateHelp, http.MethodPost, "was updated"
	}
	cmd = f.named(use, short, long, 0, func(ctx context.Context, g *groupClient, _ []string) error {
		in, err := givenSettings(cmd.Flags())
		if err != nil {
			return err
		}
		if isUpdate {
			if in, err = g.merged(ctx, in); err != nil {
				return err
			}
		}
		if err := g.Call(ctx, method, g.path(""), in, nil); err != nil {
			return err
		}
		return g.done(stdout, what)
	})
	for _, s := range groupSettings {
		switch absent := s.absent.(type) {
		case int64:
			cmd.Flags().Int64(s.flag, absent, s.usage)
		case bool:
			cmd.Flags().Bool(s.flag, absent, s.usage)
		case time.Duration:
			cmd.Flags().Duration(s.flag, absent, s.usage)
		case float64:
			cmd.Flags().Float64(s.flag, absent, s.usage)
		case string:
			cmd.Flags().String(s.flag, absent, s.usage)
		}
	}
	return cmd
}

// merged returns the present settings with some others in their place.
func (g *groupClient) merged(ctx context.Context, in map[string]any) (map[string]any, error) {
	if len(in) == 0 {
		return nil, cannot(errors.New("nothing to change: give flags of settings"))
	}
	var info struct {
		Config map[string]any `json:"config"`
	}
	if err := g.Call(ctx, http.MethodGet, g.path("/info"), nil, &info); err != nil {
		return nil, err
	}
	all := info.Config
	if _, isGiven := all["source"]; !isGiven {
		all["source"] = g.stream
	}
	if _, isGiven := in["startFrom"]; isGiven {
		delete(all, "startPosition") // It would count for more.
	}
	for member, value := range in {
		before, isObject := all[member].(map[string]any)
		if backoff, ok := value.(map[string]any); ok && isObject {
			maps.Copy(before, backoff)
			continue
		}
		all[member] = value
	}
	if _, isFiltered := in["filter"]; !isFiltered {
		delete(all, "filter") // It is kept, or goes with the source.
	}
	return all, nil
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

func parkedListCommand(f *groupFlags, stdout io.Writer) *cobra.Command {
	var from int64
	count := 50
	cmd := f.named("list", "List parked messages", "", 0, func(ctx context.Context, g *groupClient, _ []string) error {
		p, err := g.Parked(ctx, from, count)
		switch {
		case err != nil:
			return err
		case f.json:
			return printJSON(stdout, p)
		}
		var t table
		t.row("NUMBER\tPARKED\tRETRIES\tEVENT\tTYPE\tREASON")
		for i := range p.Messages {
			m := &p.Messages[i]
			retries := "-"
			if m.RetryCount != nil {
				retries = strconv.FormatInt(*m.RetryCount, 10)
			}
			t.row("%d\t%s\t%s\t%d@%s\t%s\t%s", m.Number, m.Added.UTC().Format(time.DateTime), retries, m.EventNumber, visible(m.Stream),
				cmp.Or(visible(m.Type), "(gone)"), visible(strings.Join(strings.Fields(m.Reason), " ")))
		}
		if err := t.print(stdout); err != nil || p.Next == nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "%d in all; more with --from %d\n", p.Total, *p.Next)
		return err
	})
	cmd.Flags().Int64Var(&from, "from", 0, "number of the first message")
	cmd.Flags().IntVar(&count, "count", count, "messages to list, 500 at most")
	return cmd
}

// numbersOf reads the numbers of messages.
func numbersOf(args []string) (numbers []int64, err error) {
	for _, arg := range args {
		for one := range strings.SplitSeq(arg, ",") {
			n, err := strconv.ParseInt(one, 10, 64)
			if err != nil || n < 0 {
				return nil, cannot(fmt.Errorf("%q is not the number of a message", one))
			}
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

func parkedForwardCommand(f *groupFlags, stdout io.Writer) *cobra.Command {
	cmd := f.named("forward TO [NUMBER...]", "Move parked messages to a stream", parkedForwardHelp, -1, func(ctx context.Context, g *groupClient, args []string) error {
		if len(args) == 0 {
			return cannot(errors.New("the stream that the messages go to is missing"))
		}
		numbers, err := numbersOf(args[1:])
		if err != nil {
			return err
		}
		done, err := g.ForwardParked(ctx, args[0], numbers...)
		switch {
		case err != nil:
			return err
		case f.json:
			return printJSON(stdout, done)
		}
		_, err = fmt.Fprintf(stdout, "messages forwarded to %s: %d", visible(args[0]), done.Count)
		if err == nil && done.Gone > 0 {
			_, err = fmt.Fprintf(stdout, "; parked still, because their events are gone: %d", done.Gone)
		}
		if err == nil {
			_, err = fmt.Fprintln(stdout)
		}
		return err
	})
	return cmd
}

func parkedReplayCommand(f *groupFlags, stdout io.Writer) *cobra.Command {
	var rate int
	cmd := f.named("replay [NUMBER...]", "Hand parked messages out again", parkedReplayHelp, -1, func(ctx context.Context, g *groupClient, args []string) error {
		numbers, err := numbersOf(args)
		switch {
		case err != nil:
			return err
		case len(numbers) > 0 && rate > 0:
			return cannot(errors.New("--rate is for all parked messages, without numbers"))
		case len(numbers) > 0:
			err = g.ReplayParkedMessages(ctx, numbers...)
		default:
			err = g.ReplayParkedAtRate(ctx, rate)
		}
		if err != nil {
			return err
		}
		return g.done(stdout, "replays parked messages")
	})
	cmd.Flags().IntVar(&rate, "rate", 0, "messages a second, 10000 at most; 0 for as fast as the group can")
	return cmd
}

func parkedDropCommand(f *groupFlags, stdout io.Writer) *cobra.Command {
	confirm := atTerminal(os.Stderr)
	cmd := f.named("drop NUMBER...", "Take parked messages out for good", "Take messages out of the parked ones for good. Their events stay in their streams.", -1, func(ctx context.Context, g *groupClient, args []string) error {
		numbers, err := numbersOf(args)
		switch {
		case err != nil:
			return err
		case len(numbers) == 0:
			return cannot(errors.New("the numbers of the messages are missing"))
		}
		if err := confirm.given(fmt.Sprintf("This drops %d parked messages of the group %s", len(numbers), g)); err != nil {
			return err
		}
		if err := g.DropParked(ctx, numbers...); err != nil {
			return err
		}
		return g.done(stdout, "dropped parked messages")
	})
	confirm.add(cmd.Flags())
	return cmd
}
