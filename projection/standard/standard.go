// Package standard has the system projections: handlers in Go that keep streams of
// links to the events of a category, of a type, of a correlation id, and lists of streams.
package standard

import (
	"fmt"
	"strings"

	"github.com/annalsdb/annals/projection/handler"
)

// Projection is one of the projections that every database has.
type Projection struct {
	Name, Type, Source string
}

// Names of handlers: the part of a handler type after the last dot.
const (
	nameStreams      = "IndexStreams"
	nameCategories   = "CategorizeStreamByPath"
	nameByCategory   = "CategorizeEventsByStreamPath"
	nameByType       = "IndexEventsByEventType"
	nameCorrelations = "ByCorrelationId"

	native    = "native:"
	namespace = native + "EventStore.Projections.Core.Standard."
)

// ByCorrelationID is the name of the projection whose configuration says which member
// of an event's metadata is its correlation id.
const ByCorrelationID = "$by_correlation_id"

// All lists the system projections in the order of their creation.
var All = []Projection{
	{"$streams", namespace + nameStreams, ""},
	{"$stream_by_category", namespace + nameCategories, "first\r\n-"},
	{"$by_category", namespace + nameByCategory, "first\r\n-"},
	{"$by_event_type", namespace + nameByType, ""},
	{ByCorrelationID, namespace + nameCorrelations, `{"correlationIdProperty":"$correlationId"}`},
}

// New returns the handler of a native handler type with its configuration text. An emission is a
// fault unless emitting is allowed. Errors are *handler.Fault.
func New(handlerType, source string, mayEmit bool) (handler.Handler, error) {
	h, err := newHandler(handlerType, source)
	if err == nil && !mayEmit {
		h = forbidden{h}
	}
	return h, err
}

func newHandler(handlerType, source string) (handler.Handler, error) {
	name := handlerType[strings.LastIndexAny(handlerType, ".:")+1:]
	if len(handlerType) >= len(native) && strings.EqualFold(handlerType[:len(native)], native) {
		switch name {
		case nameStreams:
			return &streams{}, nil
		case nameCategories, nameByCategory:
			split, err := parseCategorizer(source)
			if err != nil {
				return nil, err
			}
			if name == nameCategories {
				return &categories{split: split}, nil
			}
			return &byCategory{split: split}, nil
		case nameByType:
			return &byType{}, nil
		case nameCorrelations:
			property, err := CorrelationProperty(source)
			if err != nil {
				return nil, err
			}
			return &byCorrelation{property: property}, nil
		}
	}
	return nil, fault("'%s' handler type is not supported", handlerType)
}

func fault(format string, args ...any) error {
	return &handler.Fault{Message: fmt.Sprintf(format, args...), Definition: true}
}
