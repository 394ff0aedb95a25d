package label

import (
	"strings"

	"github.com/annalsdb/annals/event"
)

// Check returns a *event.BadRequest for a write that goes to a stream which is only an index, and
// for one with an event whose tags are malformed: its writer would believe it tagged. All writes of
// clients, projections and other nodes pass it.
func Check(w *event.Write) error {
	if isReserved(w.Stream) {
		return errReserved
	}
	if w.Many != nil {
		for _, stream := range w.Many.Streams {
			if isReserved(stream) {
				return errReserved
			}
		}
	}
	for i := range w.Events {
		e := &w.Events[i]
		if !mayHave(e.Metadata) {
			continue
		}
		f := event.Facts{Stream: w.StreamOf(i), Type: e.Type}
		if f.IsSystem() {
			continue
		}
		m := membersOf(e.Metadata)
		if _, err := m.appendTags(nil); err != nil {
			return err
		}
	}
	return nil
}

var errReserved = &event.BadRequest{Text: "Index streams cannot be written to."}

// isReserved reports whether a name, or that of the stream it describes, is one of indexes. The
// metadata of the name which begins them all says who may read them.
func isReserved(stream string) bool {
	return strings.HasPrefix(stream, "$") && event.IsIndexStream(event.RootOf(stream)) && stream != event.MetaStreamOf(event.IndexPrefix)
}
