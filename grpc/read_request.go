package grpcapi

import (
	"fmt"
	"math"
	"slices"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc/codes"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/match"
)

// countWindow is the window of a filter that was given a count instead.
const countWindow = 32

// readRequest has the parameters of a read or a subscription.
type readRequest struct {
	stream    string // event.AllStream: the log, if all
	all       bool
	backward  bool
	resolve   bool
	textIDs   bool
	positions bool // of the stream are reported around its events

	begin beginning
	from  int64 // beginsAt: number or position

	subscribed bool
	limit      int64 // of events, unless subscribed

	// finds what is read: that of an index, whose name the filter has; nil: no query does
	query *event.Query
	part  *api.QueryRead // of the log, in which the query is read once; nil: all

	filtered bool
	filter   match.Filter
	names    *event.FilterNames // that the filter chooses
	// records between checkpoints of a filtered subscription; 0: none are sent
	interval uint64
}

// beginning is where a read or a subscription begins.
type beginning uint8

const (
	beginsAtStart beginning = iota
	beginsAtEnd
	beginsAt // a number or a position
)

// readRequestOf reads a request.
func readRequestOf(req *streams.ReadReq) (q readRequest, err error) {
	o := req.GetOptions()
	switch s := o.GetStreamOption().(type) {
	case *streams.ReadReq_Options_Stream:
		err = q.ofStream(s.Stream)
	case *streams.ReadReq_Options_All:
		err = q.ofAll(s.All)
	default:
		err = invalid("neither a stream nor $all is asked for")
	}
	if err != nil {
		return q, err
	}
	switch o.GetReadDirection() {
	case streams.ReadReq_Options_Forwards:
	case streams.ReadReq_Options_Backwards:
		q.backward = true
	default:
		return q, invalid("the direction %d is unknown", o.GetReadDirection())
	}
	switch c := o.GetCountOption().(type) {
	case *streams.ReadReq_Options_Count:
		q.limit = int64(min(c.Count, math.MaxInt64))
	case *streams.ReadReq_Options_Subscription:
		if q.subscribed = true; q.backward {
			return q, invalid("a subscription goes forward only")
		}
	default:
		return q, invalid("neither a count nor a subscription is asked for")
	}
	if f, ok := o.GetFilterOption().(*streams.ReadReq_Options_Filter); ok {
		if !q.all {
			return q, invalid("a filter goes with $all only")
		}
		if err := q.ofFilter(f.Filter); err != nil {
			return q, err
		}
	}
	q.resolve = o.GetResolveLinks()
	_, q.textIDs = o.GetUuidOption().GetContent().(*streams.ReadReq_Options_UUIDOption_String_)
	q.positions = o.GetControlOption().GetCompatibility() > 0
	return q, nil
}

func (q *readRequest) ofStream(o *streams.ReadReq_Options_StreamOptions) (err error) {
	if q.stream, err = nameOf(o.GetStreamIdentifier()); err != nil {
		return err
	}
	if event.IsIndex(q.stream) {
		return invalid("Read an index through $all: one stream prefix, the name of the index.")
	}
	switch r := o.GetRevisionOption().(type) {
	case *streams.ReadReq_Options_StreamOptions_Revision:
		if r.Revision == noRevision {
			q.begin = beginsAtEnd
			return nil
		}
		q.begin = beginsAt
		q.from, err = revisionOf(r.Revision)
		return err
	case *streams.ReadReq_Options_StreamOptions_Start:
	case *streams.ReadReq_Options_StreamOptions_End:
		q.begin = beginsAtEnd
	default:
		return invalid("the revision to begin at is missing")
	}
	return nil
}

func (q *readRequest) ofAll(o *streams.ReadReq_Options_AllOptions) (err error) {
	q.all, q.stream = true, event.AllStream
	switch p := o.GetAllOption().(type) {
	case *streams.ReadReq_Options_AllOptions_Position:
		q.begin = beginsAt
		if q.from, err = positionOf(p.Position.GetCommitPosition(), p.Position.GetPreparePosition()); q.from == event.End {
			q.begin = beginsAtEnd
		}
		return err
	case *streams.ReadReq_Options_AllOptions_Start:
	case *streams.ReadReq_Options_AllOptions_End:
		q.begin = beginsAtEnd
	default:
		return invalid("the position to begin at is missing")
	}
	return nil
}

func (q *readRequest) ofFilter(o *streams.ReadReq_Options_FilterOptions) error {
	var by *streams.ReadReq_Options_FilterOptions_Expression
	switch f := o.GetFilter().(type) {
	case *streams.ReadReq_Options_FilterOptions_StreamIdentifier:
		by, q.filter.OfStream = f.StreamIdentifier, true
	case *streams.ReadReq_Options_FilterOptions_EventType:
		by = f.EventType
	default:
		return invalid("the filter is neither for streams nor for types")
	}
	if q.filter.OfStream && by.GetRegex() == "" && slices.ContainsFunc(by.GetPrefix(), event.IsIndex) {
		return q.ofIndex(by.GetPrefix())
	}
	var err error
	if text := by.GetRegex(); text != "" {
		q.filter.Names, err = match.Expression(text)
	} else {
		q.filter.Names, err = match.Prefixes(by.GetPrefix())
	}
	if err != nil {
		return invalid("the filter is not valid: %v", err)
	}
	q.filtered, q.names = true, &event.FilterNames{NameFilter: q.filter.Names, OfStream: q.filter.OfStream}
	window := uint64(countWindow)
	switch w := o.GetWindow().(type) {
	case *streams.ReadReq_Options_FilterOptions_Max:
		window = uint64(w.Max)
	case *streams.ReadReq_Options_FilterOptions_Count:
	default:
		return invalid("the filter has no window")
	}
	if q.subscribed { // For a read it has no meaning.
		if q.interval = window * uint64(o.GetCheckpointIntervalMultiplier()); q.interval == 0 {
			return invalid("the interval between checkpoints is 0")
		}
	}
	return nil
}

// indexOf returns the query of an index by the prefixes of a filter that names it.
func indexOf(prefixes []string) (*event.Query, error) {
	if len(prefixes) != 1 {
		return nil, invalid("Index reads take one index name and no other prefix.")
	}
	query, ok := label.IndexQuery(prefixes[0])
	if !ok {
		return nil, &problem{codes.NotFound, fmt.Sprintf("Index '%s' not found.", prefixes[0]), "index-not-found", []string{"index-name", prefixes[0]}}
	}
	return query, nil
}

// ofIndex makes the request one for an index. Who may read indexes needs no right to the log.
func (q *readRequest) ofIndex(prefixes []string) (err error) {
	q.stream = event.IndexStream
	q.query, err = indexOf(prefixes)
	return err
}
