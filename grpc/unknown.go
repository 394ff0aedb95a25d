package grpcapi

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A newer client may send a field that this server does not know. In a request that changes
// something it may be what the client cares for most, such as a condition: the request is refused.

// harmless are the unknown fields that a message of a change may have all the same, by its name
// without the package.
var harmless = map[string][]protowire.Number{}

// unknownField is the answer to a field that a message of a change must not have; nil: it may.
func unknownField(message string, number protowire.Number) error {
	if slices.Contains(harmless[message], number) {
		return nil
	}
	return invalid("Unknown field %d in %s.", number, message)
}

// onlyKnown refuses a message of a change that has unknown fields, also in its parts.
func onlyKnown(m protoreflect.Message) (err error) {
	d := m.Descriptor()
	name := strings.TrimPrefix(string(d.FullName()), string(d.ParentFile().Package())+".")
	for rest := []byte(m.GetUnknown()); len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 { // It was decoded: there is none.
			break
		}
		if err := unknownField(name, number); err != nil {
			return err
		}
		rest = rest[n:]
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				err = onlyKnown(v.Message())
				return err == nil
			})
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = onlyKnown(v.List().Get(i).Message())
			}
		default:
			err = onlyKnown(v.Message())
		}
		return err == nil
	})
	return err
}
