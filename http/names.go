package httpapi

import (
	"context"
	"fmt"

	"github.com/annalsdb/annals/event"
)

const (
	defaultNames = 100
	maxNames     = 1000
)

// namesDocument is a page of the names of streams. Its names are part of the wire: do not change.
type namesDocument struct {
	Streams []namedStream `json:"streams"`
	Next    string        `json:"next,omitempty"`
}

type namedStream struct {
	Name    string `json:"name"`
	Last    int64  `json:"lastEventNumber"`
	Deleted string `json:"deleted"` // "", soft or hard
}

// streamNames answers with the names of streams, by name or the newest stream first.
func (s *streamHandlers) streamNames(ctx context.Context, x *exchange) error {
	raw := x.r.URL.RawQuery
	r := event.NamesRead{Prefix: queryValue(raw, "prefix"), After: queryValue(raw, "after")}
	var ok bool
	if r.Count, ok = queryInt(raw, "count", defaultNames, 1, maxNames); !ok {
		return badRequest("count must be between 1 and 1000 inclusive")
	}
	switch order := queryValue(raw, "order"); order {
	case "", "name":
	case "created":
		r.Created = true
	default:
		return badRequest("order must be name or created")
	}
	ctx = x.reads()
	page, err := s.store.Names(ctx, r)
	if err != nil {
		return err
	}
	d := namesDocument{Streams: make([]namedStream, len(page.Streams)), Next: page.Next}
	for i, s := range page.Streams {
		d.Streams[i] = namedStream{Name: s.Name, Last: s.Last}
		switch {
		case s.HardDeleted:
			d.Streams[i].Deleted = "hard"
		case s.SoftDeleted:
			d.Streams[i].Deleted = "soft"
		}
	}
	return sendFreshJSON(x, &d)
}

func notListed(e *event.NamesNotListed) string {
	return fmt.Sprintf("The names of streams are being collected: %d %% done", e.Done*100/max(1, e.Total))
}
