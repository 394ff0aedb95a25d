package admin

import (
	"context"
	"net/http"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
)

// IndexHandlers answer about the index of what events say of themselves.
type IndexHandlers struct{ Index api.Index }

// indexDocument is the state of the index. Its names are part of the wire: do not change.
type indexDocument struct {
	State       string `json:"state"` // live or building
	Position    int64  `json:"position"`
	LogEnd      int64  `json:"logEnd"`
	Tables      int    `json:"tables"`
	Bytes       int64  `json:"bytes"`
	MemoryBytes int64  `json:"memoryBytes"`

	Kinds         map[string]indexKind `json:"kinds"`
	MalformedTags int64                `json:"malformedTags"`
}

type indexKind struct {
	Keys     int64 `json:"keys"`
	Postings int64 `json:"postings"`
}

// indexNames is a page of categories or types. Its names are part of the wire: do not change.
type indexNames struct {
	Names []event.IndexName `json:"names"`
	Next  string            `json:"next,omitempty"`
}

const defaultIndexNames, maxIndexNames = 100, 1000

// Status answers with the state of the index.
func (n *IndexHandlers) Status(_ context.Context, x *request.Request) error {
	s, err := n.Index.IndexStatus()
	if err != nil {
		return err
	}
	d := indexDocument{"live", s.Position, s.LogEnd, s.Tables, s.Bytes, s.MemoryBytes, map[string]indexKind{}, s.MalformedTags}
	for _, k := range s.Kinds {
		d.Kinds[k.Name] = indexKind{k.Keys, k.Postings}
	}
	if s.IsBuilding {
		d.State = "building"
	}
	return x.SendFreshJSON(&d)
}

// Names answers with the categories, or the types, by name.
func (n *IndexHandlers) Names(types bool) func(context.Context, *request.Request) error {
	return func(_ context.Context, x *request.Request) error {
		raw := x.R.URL.RawQuery
		r := event.IndexNamesRead{Types: types, Prefix: args.Value(raw, "prefix"), After: args.Name(args.Value(raw, "after"))}
		var ok bool
		if r.Count, ok = args.Int(raw, "count", defaultIndexNames, 1, maxIndexNames); !ok {
			return problem.Bad("count must be between 1 and 1000 inclusive")
		}
		page, err := n.Index.IndexNames(x.Reads(), r)
		if err != nil {
			return err
		}
		d := indexNames{Names: page.Names, Next: args.NameText(page.Next)}
		if d.Names == nil {
			d.Names = []event.IndexName{}
		}
		return x.SendFreshJSON(&d)
	}
}

// Rebuild has the index be made again.
func (n *IndexHandlers) Rebuild(_ context.Context, x *request.Request) error {
	if err := n.Index.RebuildIndex(); err != nil {
		return err
	}
	x.W.Header()[request.KeyContentType] = media.Text.ContentType
	x.Send(http.StatusAccepted, nil)
	return nil
}
