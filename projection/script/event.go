package script

import (
	"slices"

	"github.com/dop251/goja"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection/handler"
)

// eventKeys are the properties of an event, in the order in which a script sees them.
var eventKeys = []string{
	"streamId", "sequenceNumber", "eventType", "eventId", "isJson", "body", "data", "bodyRaw",
	"metadata", "metadataRaw", "linkMetadata", "linkMetadataRaw", "partition", "category",
}

// eventObject is an event as a script sees it: an object whose properties are made
// when they are touched.
type eventObject struct {
	h                    *Handler
	e                    handler.Event
	body, metadata, link goja.Value // parsed; nil: not yet
}

var _ goja.DynamicObject = (*eventObject)(nil)

func (h *Handler) eventOf(e *handler.Event) *goja.Object {
	return h.e.rt.NewDynamicObject(&eventObject{h: h, e: *e})
}

// Get returns a property; nil: there is none of that name.
func (o *eventObject) Get(key string) goja.Value {
	rt := o.h.e.rt
	switch key {
	case "body", "data":
		if !o.e.IsJSON() {
			return goja.Undefined()
		}
		return o.parsed(&o.body, o.e.Data, "body", o.e.Record)
	case "streamId":
		return rt.ToValue(o.e.Stream)
	case "sequenceNumber":
		return rt.ToValue(o.e.Number)
	case "eventType":
		return rt.ToValue(o.e.Type)
	case "eventId":
		return rt.ToValue(o.e.ID.String())
	case "isJson":
		return rt.ToValue(o.e.IsJSON())
	case "bodyRaw":
		return o.raw(o.e.Data)
	case "metadata":
		return o.parsed(&o.metadata, o.e.Metadata, "metadata", o.e.Record)
	case "metadataRaw":
		return o.raw(o.e.Metadata)
	case "linkMetadata":
		if o.e.Link == nil {
			return goja.Null()
		}
		return o.parsed(&o.link, o.e.Link.Metadata, "metadata", o.e.Link)
	case "linkMetadataRaw":
		if o.e.Link == nil {
			return goja.Null()
		}
		return o.raw(o.e.Link.Metadata)
	case "partition":
		return rt.ToValue(o.e.Partition)
	case "category":
		if o.e.Category == "" {
			return goja.Null()
		}
		return rt.ToValue(o.e.Category)
	}
	return nil
}

// raw is a text, or null if it is empty.
func (o *eventObject) raw(text []byte) goja.Value {
	if len(text) == 0 {
		return goja.Null()
	}
	return o.h.e.text(text)
}

// parsed is the value of a JSON text, which is parsed once.
func (o *eventObject) parsed(at *goja.Value, text []byte, what string, of *event.Record) goja.Value {
	if *at == nil {
		if len(text) == 0 {
			return goja.Null()
		}
		if !jsontext.Valid(text) {
			o.h.e.throw("the %s of event %d@%s is not JSON", what, of.Number, of.Stream)
		}
		*at = o.h.codec.read(text)
	}
	return *at
}

// Set refuses: events are read-only.
func (o *eventObject) Set(string, goja.Value) bool { return false }

// Has says whether there is a property of that name.
func (o *eventObject) Has(key string) bool {
	return slices.Contains(eventKeys, key)
}

// Delete refuses what exists.
func (o *eventObject) Delete(key string) bool { return !o.Has(key) }

// Keys are all properties.
func (o *eventObject) Keys() []string { return eventKeys }
