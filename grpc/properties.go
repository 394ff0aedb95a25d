package grpcapi

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/annalsdb/annals/internal/jsontext"
)

// Properties are a map of names to values that clients send. They are kept as metadata: one JSON
// object with sorted names, its values as the JSON form of protobuf has them.

// appendValue appends a value as JSON. A value without a kind, or a number that JSON does not have,
// is refused.
func appendValue(b []byte, v *structpb.Value) (_ []byte, err error) {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_NullValue:
		return append(b, "null"...), nil
	case *structpb.Value_BoolValue:
		if kind.BoolValue {
			return append(b, "true"...), nil
		}
		return append(b, "false"...), nil
	case *structpb.Value_NumberValue:
		if math.IsNaN(kind.NumberValue) || math.IsInf(kind.NumberValue, 0) {
			return nil, invalid("a property has the number %v, which JSON does not have", kind.NumberValue)
		}
		text, err := json.Marshal(kind.NumberValue)
		return append(b, text...), err
	case *structpb.Value_StringValue:
		return jsontext.AppendString(b, kind.StringValue), nil
	case *structpb.Value_StructValue:
		return appendProperties(b, kind.StructValue.GetFields())
	case *structpb.Value_ListValue:
		b = append(b, '[')
		for i, v := range kind.ListValue.GetValues() {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendValue(b, v); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	}
	return nil, invalid("a property has a value without a kind")
}

// appendProperties appends properties as a JSON object.
func appendProperties(b []byte, all map[string]*structpb.Value) (_ []byte, err error) {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsontext.AppendString(b, name), ':')
		if b, err = appendValue(b, all[name]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}
