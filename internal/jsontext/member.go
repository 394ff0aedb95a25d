package jsontext

import "bytes"

// Member returns the value of a member of an object and what it is; of several
// members of the name the last. It is Invalid when there is none or b is not one valid
// object. It costs little where the name does not occur.
func Member(b []byte, name string) (value []byte, kind Kind) {
	if !bytes.Contains(b, []byte(name)) && bytes.IndexByte(b, '\\') < 0 {
		return nil, Invalid
	}
	walk := ObjectAt(b, Space(b, 0))
	for walk.Next() {
		if string(Unquote(nil, walk.Name)) == name {
			value, kind = walk.Value, walk.Kind
		}
	}
	if end, ok := walk.End(); !ok || Space(b, end) != len(b) {
		return nil, Invalid
	}
	return value, kind
}

// MemberText returns the value of a member as text: that of a string what it says, that
// of others their JSON. Null is as good as no member.
func MemberText(b []byte, name string) (text string, ok bool) {
	switch value, kind := Member(b, name); kind {
	case Invalid, Null:
		return "", false
	case String:
		return string(Unquote(nil, value)), true
	default:
		return string(value), true
	}
}
