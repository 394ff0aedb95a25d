package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/client"
)

const groupUpdateHelp = `Change settings of a group. Those that no flag names stay as they are.

The group is loaded again from its last checkpoint, and its consumers connect again. With
another --source or --filter it keeps its place in the log.`

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
