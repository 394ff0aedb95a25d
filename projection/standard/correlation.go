package standard

import (
	"encoding/json"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection/handler"
)

// CorrelationProperty reads the configuration of $by_correlation_id: the name of the member
// of an event's metadata that holds its correlation id. Errors are *handler.Fault.
func CorrelationProperty(source string) (string, error) {
	var config map[string]json.RawMessage // A struct would take names in any case.
	var property *string
	if json.Unmarshal([]byte(source), &config) != nil || json.Unmarshal(config["correlationIdProperty"], &property) != nil || property == nil {
		return "", fault("Could not parse projection source. Please make sure the source is a valid JSON string with a property: 'correlationIdProperty' having a string value")
	}
	return *property, nil
}

// byCorrelation links the events of each correlation id in $bc-<id>.
type byCorrelation struct {
	base
	property string
}

func (*byCorrelation) Definition() *handler.Definition { return withoutLinks() }

func (h *byCorrelation) Process(e *handler.Event) (handler.Outcome, error) {
	if e.Type == event.TypeLink {
		return skipped, nil
	}
	id, ok := jsontext.MemberText(e.Metadata, h.property)
	if !ok {
		return skipped, nil
	}
	stamp := e.When().AppendFormat(make([]byte, 0, 32), `"2006-01-02T15:04:05.000000Z"`)
	return link(correlationPrefix+id, e.Number, e.Stream).with(handler.Field{Name: keyTimestamp, Value: stamp}).out(), nil
}
