package standard

import (
	"strconv"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
)

// Names in the written events. They are part of the contract: do not change.
const (
	listOfStreams     = "$streams"
	categoryPrefix    = "$category-"
	byCategoryPrefix  = "$ce-"
	byTypePrefix      = "$et-"
	marks             = "$et"
	correlationPrefix = "$bc-"
	deletions         = byTypePrefix + "$deleted"

	typeStreamReference = "$@"
	typeMark            = "$Checkpoint"

	keyOrigin    = "$o"
	keyDeleted   = "$deleted"
	keyTimestamp = "$eventTimestamp"
)

var deleted = []byte("-1") // the value of keyDeleted

// written holds one emission and the values that it points to, so that one allocation is enough.
type written struct {
	emission [1]handler.Emission
	metadata [2]handler.Field
	to       handler.Target
}

// out returns the outcome for one emission. A name that no stream may have gets nothing: a
// type and a category may be as long as a name, which leaves no room for the prefix.
func (w *written) out() handler.Outcome {
	if len(w.emission[0].Stream) > event.MaxNameBytes {
		return skipped
	}
	return handler.Outcome{Emitted: w.emission[:]}
}

// link makes an emission that links to an event.
func link(in string, number int64, stream string) *written {
	w := &written{to: handler.Target{Stream: stream, Number: number}}
	data := make([]byte, 0, len(stream)+8)
	data = strconv.AppendInt(data, number, 10)
	data = append(data, '@')
	w.emission[0] = handler.Emission{Stream: in, Type: event.TypeLink, Data: append(data, stream...), To: &w.to}
	return w
}

// sameLink makes an emission that links to the target of the link e.
func sameLink(in string, e *event.Record) *written {
	w := &written{}
	w.emission[0] = handler.Emission{Stream: in, Type: event.TypeLink, Data: append([]byte(nil), e.Data...)}
	if number, stream, ok := event.ParseLink(e.Data); ok {
		w.to = handler.Target{Stream: stream, Number: number}
		w.emission[0].To = &w.to
	}
	return w
}

// with adds fields to the metadata.
func (w *written) with(fields ...handler.Field) *written {
	w.emission[0].Metadata = w.metadata[:copy(w.metadata[:], fields)]
	return w
}

// deletedStream returns the stream whose deletion a record tells, which may be that
// of the record or the one that it describes.
func deletedStream(e *event.Record) (stream string, ok bool) {
	switch {
	case e.Type == event.TypeStreamDeleted && e.Number == event.TombstoneNumber:
		return e.Stream, true
	case e.Type == event.TypeMetadata && event.IsMetaStream(e.Stream):
		m := event.ParseMetadata(e.Data)
		return event.OriginalOf(e.Stream), m.SoftDeleted()
	}
	return "", false
}
