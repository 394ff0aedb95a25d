package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Place is where something stands in a stream: Start, End, an AtNumber, an AtTime, or what
// Recorded.Place and TailMessage.ID say. It can be kept as text.
type Place string

// The places that each stream has.
const (
	Start Place = "start"
	End   Place = "end"
)

// AtNumber is the place of an event of a stream. AllStream has none.
func AtNumber(n int64) Place { return Place(strconv.FormatInt(n, 10)) }

// AtTime is the place of the first event that was not written before a time.
func AtTime(t time.Time) Place { return Place(t.UTC().Format(time.RFC3339Nano)) }

// TailOptions say what Subscribe and Tail give. The zero value is all events from the start, and
// all that will be written.
type TailOptions struct {
	From  Place // the first event: by default Start, with Backward End
	After Place // in place of From: what comes after an event, the Place that it had
	To    Place // the last event. End ends it when it gave all there was
	// Backward gives the newest events first, from From down to To, and then ends.
	Backward bool
	Limit    int // at most so many events; 0: any number

	Types       []string // only types that begin with one of these
	TypesLike   string   // only types that this expression (RE2) matches
	Streams     []string // of AllStream only streams that begin with one of these
	StreamsLike string   // of AllStream only streams that this expression (RE2) matches
	Contains    string   // only events whose data or metadata contain this text
	EventID     string   // only the event with this id
	NoSystem    bool     // no types and streams that begin with $

	// Resolve says whether links show the events that they lead to: by default true, in AllStream
	// false.
	Resolve *bool
	NoData  bool // without data and metadata
	MaxData int  // cut data and metadata after so many bytes; 0: never, negative: leave out all
	// Leader asks the leader: what is acknowledged before the subscription comes before KindLive.
	Leader bool
}

// query is that of the endpoint.
func (o *TailOptions) query() (string, error) {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	switch {
	case o.Limit < 0:
		return "", errors.New("a limit is not negative")
	case o.From != "" && o.After != "":
		return "", errors.New("a tail begins From a place or After a place, not both")
	case o.From != "":
		set("from", string(o.From))
	case !o.Backward && o.After == "":
		set("from", string(Start))
	}
	set("to", string(o.To))
	set("contains", o.Contains)
	set("id", o.EventID)
	for _, names := range []struct {
		name, like string
		prefixes   []string
	}{{"types", o.TypesLike, o.Types}, {"streams", o.StreamsLike, o.Streams}} {
		value, err := oneOf(names.prefixes, names.like)
		if err != nil {
			return "", fmt.Errorf("choose %s: %w", names.name, err)
		}
		set(names.name, value)
	}
	if o.Limit > 0 {
		set("limit", strconv.Itoa(o.Limit))
	}
	if o.Backward {
		set("backward", "true")
	}
	if o.NoSystem {
		set("system", "false")
	}
	if o.Resolve != nil {
		set("resolve", strconv.FormatBool(*o.Resolve))
	}
	if o.NoData {
		set("embed", "rich")
	}
	if o.MaxData != 0 {
		set("maxData", strconv.Itoa(max(0, o.MaxData)))
	}
	return q.Encode(), nil
}

// oneOf writes prefixes, or an expression, as the endpoint reads them.
func oneOf(prefixes []string, like string) (string, error) {
	switch {
	case like != "" && len(prefixes) > 0:
		return "", errors.New("by prefixes or by an expression, not both")
	case like != "":
		return "/" + like + "/", nil
	case len(prefixes) == 0:
		return "", nil
	}
	quoted := make([]string, len(prefixes))
	plain := !strings.HasPrefix(prefixes[0], "/")
	for i, p := range prefixes {
		if p == "" {
			return "", errors.New("a prefix is empty")
		}
		plain = plain && !strings.Contains(p, ",") && p == strings.TrimSpace(p)
		quoted[i] = regexp.QuoteMeta(p)
	}
	if plain {
		return strings.Join(prefixes, ","), nil
	}
	return "/^(" + strings.Join(quoted, "|") + ")/", nil // A list cannot say it.
}

// Subscribe gives every event of a stream and those that will be appended, until the context ends.
// The stream need not exist yet. A subscription whose connection breaks, or whose node stops,
// resumes on any node that the client knows: it loses nothing and gives nothing twice. To continue
// later, keep Recorded.Place with what came of the event, and pass it as TailOptions.After.
//
// The last value has an error, unless the options say where the subscription ends: that of the
// context, ErrDeleted when the stream got a tombstone, ErrAccessDenied when the user may no longer
// read it, and ErrUnavailable when no node answered at first for Options.RetryFor.
func (c *Client) Subscribe(ctx context.Context, stream string, o TailOptions) iter.Seq2[Recorded, error] {
	return func(yield func(Recorded, error) bool) {
		for m, err := range c.Tail(ctx, stream, o) {
			var e Recorded
			switch {
			case err != nil:
			case m.Kind == KindEvent:
				e.Place = m.ID
				err = json.Unmarshal(m.Data, &e)
			case m.Kind == KindGone:
				err = ErrDeleted
			case m.Kind == KindDenied:
				err = ErrAccessDenied
			case m.Kind == KindEnd:
				return
			default:
				continue
			}
			if err != nil {
				yield(Recorded{}, fmt.Errorf("subscribe to %s: %w", stream, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(Recorded{}, err)
		}
	}
}
