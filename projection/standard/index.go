package standard

import (
	"strconv"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection/handler"
)

// streams lists all streams in $streams, by links to their first events.
type streams struct{ base }

func (*streams) Definition() *handler.Definition { return withLinks() }

func (*streams) Process(e *handler.Event) (handler.Outcome, error) {
	if e.Number != 0 {
		return skipped, nil
	}
	return link(listOfStreams, 0, e.Stream).out(), nil
}

// categories lists the streams of each category in $category-<category>.
type categories struct {
	base
	split categorizer
}

func (*categories) Definition() *handler.Definition { return withLinks() }

func (h *categories) Process(e *handler.Event) (handler.Outcome, error) {
	category, ok := h.split.of(e.Stream)
	if e.Number != 0 || !ok {
		return skipped, nil
	}
	w := &written{}
	w.emission[0] = handler.Emission{Stream: categoryPrefix + category, Type: typeStreamReference, Data: []byte(e.Stream)}
	return w.out(), nil
}

// byCategory links the events of each category in $ce-<category>. A link is treated
// under the stream that it lies in, and its target is linked.
type byCategory struct {
	base
	split categorizer
}

func (*byCategory) Definition() *handler.Definition { return withLinks() }

func (h *byCategory) Process(e *handler.Event) (handler.Outcome, error) {
	origin, gone := deletedStream(e.Record)
	if !gone {
		origin = e.Stream
	}
	category, ok := h.split.of(origin)
	if !ok {
		return skipped, nil
	}
	in := byCategoryPrefix + category
	o := handler.Field{Name: keyOrigin, Value: jsontext.AppendString(nil, origin)}
	switch {
	case gone:
		return link(in, e.Number, e.Stream).with(o, handler.Field{Name: keyDeleted, Value: deleted}).out(), nil
	case e.Type == event.TypeLink:
		return sameLink(in, e.Record).with(o).out(), nil
	}
	return link(in, e.Number, e.Stream).with(o).out(), nil
}

// byType links the events of each type in $et-<type>, and marks in $et how far it came.
type byType struct{ base }

func (*byType) Definition() *handler.Definition {
	d := withoutLinks()
	d.Mark = mark
	return d
}

func (*byType) Process(e *handler.Event) (handler.Outcome, error) {
	if e.Type == event.TypeLink {
		return skipped, nil
	}
	if gone, ok := deletedStream(e.Record); ok {
		return link(deletions, e.Number, gone).with(handler.Field{Name: keyDeleted, Value: deleted}).out(), nil
	}
	return link(byTypePrefix+e.Type, e.Number, e.Stream).out(), nil
}

// mark tells readers of $et- streams up to where they are complete.
func mark(commit, prepare int64) handler.Emission {
	data := strconv.AppendInt([]byte(`{"$c":`), commit, 10)
	data = strconv.AppendInt(append(data, `,"$p":`...), prepare, 10)
	return handler.Emission{Stream: marks, Type: typeMark, JSON: true, Data: append(data, '}'), Mark: true}
}
