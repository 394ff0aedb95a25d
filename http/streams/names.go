package streams

import (
	"context"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
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

// Names answers with the names of streams, by name or the newest stream first.
func (s *Handlers) Names(_ context.Context, x *request.Request) error {
	raw := x.R.URL.RawQuery
	r := event.NamesRead{Prefix: args.Value(raw, "prefix"), After: args.Name(args.Value(raw, "after"))}
	var ok bool
	if r.Count, ok = args.Int(raw, "count", defaultNames, 1, maxNames); !ok {
		return problem.Bad("count must be between 1 and 1000 inclusive")
	}
	switch order := args.Value(raw, "order"); order {
	case "", "name":
	case "created":
		r.Created = true
	default:
		return problem.Bad("order must be name or created")
	}
	ctx, err := leader.Reads(x, false)
	if err != nil {
		return err
	}
	page, err := s.Store.Names(ctx, r)
	if err != nil {
		return err
	}
	d := namesDocument{Streams: make([]namedStream, len(page.Streams)), Next: args.NameText(page.Next)}
	for i, s := range page.Streams {
		d.Streams[i] = namedStream{Name: s.Name, Last: s.Last}
		switch {
		case s.HardDeleted:
			d.Streams[i].Deleted = "hard"
		case s.SoftDeleted:
			d.Streams[i].Deleted = "soft"
		}
	}
	return x.SendFreshJSON(&d)
}
