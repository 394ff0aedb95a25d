package label

import (
	"encoding/json"

	"github.com/annalsdb/annals/event"
)

// Withdrawn is an event that is no longer found by its tags and its correlation id.
type Withdrawn struct {
	Position int64    `json:"position"`
	ID       event.ID `json:"eventId"` // a copied log may have another event at the position
}

// ReadWithdrawn returns the events of which a record says that their metadata is redacted.
func ReadWithdrawn(stream, eventType []byte, data []byte) []Withdrawn {
	if string(stream) != event.RedactionsStream || string(eventType) != event.TypeRedacted {
		return nil
	}
	var said struct {
		Metadata bool        `json:"metadata"`
		Events   []Withdrawn `json:"events"`
	}
	if json.Unmarshal(data, &said) != nil || !said.Metadata {
		return nil
	}
	return said.Events
}
