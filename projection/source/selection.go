package source

import (
	"maps"
	"slices"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection/handler"
)

const (
	categoryPrefix = "$ce-"

	// Names in the metadata of the links of a category: the stream that the link was
	// made for, and that the link tells the stream's deletion.
	nameOriginal = "$o"
	nameDeleted  = "$deleted"
)

// Names returns the names that a user must have the right to read to use a definition: streams, or
// the log.
func Names(d *handler.Definition) []string {
	if d.AllStreams {
		return []string{event.AllStream}
	}
	return streamsOf(d)
}

// streamsOf returns the streams that a definition names, each once.
func streamsOf(d *handler.Definition) []string {
	streams := make([]string, 0, len(d.Categories)+len(d.Streams))
	seen := make(map[string]bool, cap(streams))
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			streams = append(streams, name)
		}
	}
	for _, c := range d.Categories {
		add(categoryPrefix + c)
	}
	for _, s := range d.Streams {
		add(s)
	}
	return streams
}

// selection decides which events are for a definition.
type selection struct {
	all      bool // no named types
	one      string
	types    map[string]bool // nil when there is at most one
	links    bool            // unresolved links of the log too
	deleted  bool            // deletions are reported
	tombs    bool            // $streamDeleted is named
	category bool
}

func newSelection(d *handler.Definition) selection {
	s := selection{
		all: d.AllEvents || len(d.Events) == 0, links: d.IncludeLinks,
		deleted: d.HandlesDeleted, category: len(d.Categories) > 0,
	}
	if s.all {
		return s
	}
	if len(d.Events) == 1 {
		s.one = d.Events[0]
	} else {
		s.types = make(map[string]bool, len(d.Events))
		for _, e := range d.Events {
			s.types[e] = true
		}
	}
	s.tombs = s.wants(event.TypeStreamDeleted)
	return s
}

// wants reports whether events of a type are selected.
func (s *selection) wants(eventType string) bool {
	return s.all || s.types == nil && eventType == s.one || s.types != nil && s.types[eventType]
}

// inLog is the filter of a read of the log. It never fails.
func (s *selection) inLog(stream, eventType string) (bool, error) {
	switch {
	case strings.HasPrefix(stream, "$"):
		return ofOrdinary(stream) && (s.all || s.deleted && eventType == event.TypeMetadata), nil
	case eventType == event.TypeLink && !s.links:
		return false, nil
	case eventType == event.TypeStreamDeleted && s.deleted:
		return true, nil
	}
	return s.wants(eventType), nil
}

// namesInLog says which types inLog chooses; nil: any.
func (s *selection) namesInLog() *event.FilterNames {
	if s.all {
		return nil
	}
	types := slices.Collect(maps.Keys(s.types))
	if s.types == nil {
		types = exactly{s.one}
	}
	if s.deleted {
		types = append(types, event.TypeStreamDeleted, event.TypeMetadata)
	}
	return &event.FilterNames{NameFilter: exactly(types)}
}

// exactly are the names that are chosen.
type exactly []string

func (e exactly) Prefixes() []string              { return e }
func (e exactly) Match(name string) (bool, error) { return slices.Contains(e, name), nil }

// ofOrdinary reports whether a stream is the metadata stream of an ordinary stream, not of a system
// stream.
func ofOrdinary(stream string) bool {
	return len(stream) > 2 && stream[1] == '$' && stream[2] != '$'
}

// fromLog makes an event of a record of the log. It is not ok when the record was
// only looked at because it could have told a deletion.
func (s *selection) fromLog(e *handler.Event, r *event.Record) (ok bool) {
	*e = handler.Event{Record: r}
	if !s.deleted {
		return true
	}
	switch {
	case r.Type == event.TypeStreamDeleted:
		e.Gone, e.GoneOnly = r.Stream, !s.tombs
	case event.IsMetaStream(r.Stream):
		if r.Type == event.TypeMetadata {
			if m := event.ParseMetadata(r.Data); m.SoftDeleted() {
				e.Gone, e.GoneOnly = event.OriginalOf(r.Stream), !s.all
			}
		}
		return s.all || e.Gone != ""
	}
	return true
}

// fromStream makes an event of an event of a stream whose links are resolved. It
// is not ok when the event is passed over.
func (s *selection) fromStream(e *handler.Event, r *event.Resolved, category string) (ok bool) {
	if s.category {
		if r.Type != event.TypeLink {
			return false
		}
		if gone, tells := deletionOf(&r.Record); tells {
			*e = handler.Event{Record: &r.Record, Link: &r.Record, Category: category, Gone: gone, GoneOnly: true}
			return s.deleted && gone != ""
		}
		if r.Target == nil {
			return false
		}
	}
	if r.Link == event.LinkDead {
		return false
	}
	*e = handler.Event{Record: r.Event(), Category: category}
	if r.Target != nil {
		e.Link = &r.Record
	}
	return s.wants(e.Type)
}

// deletionOf tells whether a link of a category tells that a stream was deleted, and which.
func deletionOf(link *event.Record) (stream string, tells bool) {
	if _, kind := jsontext.Member(link.Metadata, nameDeleted); kind == jsontext.Invalid {
		return "", false
	}
	if name, kind := jsontext.Member(link.Metadata, nameOriginal); kind == jsontext.String {
		stream = string(jsontext.Unquote(nil, name))
	}
	return stream, true
}
