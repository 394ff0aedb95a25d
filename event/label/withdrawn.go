package label

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/annalsdb/annals/event"
)

// WithdrawnEvent is an event that is no longer found by its tags and its correlation id.
type WithdrawnEvent struct {
	Position int64    `json:"position"`
	ID       event.ID `json:"eventId"` // a copied log may have another event at the position
}

func (e WithdrawnEvent) compare(o WithdrawnEvent) int {
	return cmp.Or(cmp.Compare(e.Position, o.Position), bytes.Compare(e.ID[:], o.ID[:]))
}

// Withdrawn are such events, sorted, each once.
type Withdrawn []WithdrawnEvent

// ReadWithdrawn returns the events of which a record says that their metadata is redacted.
func ReadWithdrawn(stream, eventType []byte, data []byte) Withdrawn {
	if string(stream) != event.RedactionsStream || string(eventType) != event.TypeRedacted {
		return nil
	}
	var said struct {
		Metadata bool      `json:"metadata"`
		Events   Withdrawn `json:"events"`
	}
	if json.Unmarshal(data, &said) != nil || !said.Metadata {
		return nil
	}
	return Withdrawn(nil).With(said.Events)
}

// Has reports whether an event is among them.
func (w Withdrawn) Has(position int64, id event.ID) bool {
	if len(w) == 0 {
		return false
	}
	_, found := slices.BinarySearchFunc(w, WithdrawnEvent{position, id}, WithdrawnEvent.compare)
	return found
}

// With returns these events and more. Neither list is changed.
func (w Withdrawn) With(more Withdrawn) Withdrawn {
	all := slices.Concat(w, more)
	slices.SortFunc(all, WithdrawnEvent.compare)
	return slices.Compact(all)
}
