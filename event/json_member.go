package event

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// CorrelationMember is the member of an event's metadata that names what the event
// belongs to, unless another is configured.
const CorrelationMember = "$correlationId"

// JSONMember returns the value of a member of a JSON object, as JSON; of several members
// of the name the last. It is not ok when there is none or the text is no JSON object.
// It costs little where the name does not occur.
func JSONMember(object []byte, name string) (value []byte, ok bool) {
	if !mayHave(object, name) || !json.Valid(object) {
		return nil, false
	}
	// From here on the text is known to be valid JSON.
	at := skipSpace(object, 0)
	if object[at] != '{' {
		return nil, false
	}
	for at = skipSpace(object, at+1); object[at] != '}'; {
		key := object[at:skipString(object, at)]
		begin := skipSpace(object, skipSpace(object, at+len(key))+1) // behind the colon
		end := skipValue(object, begin)
		if keyIs(key, name) {
			value, ok = object[begin:end], true
		}
		if at = skipSpace(object, end); object[at] == ',' {
			at = skipSpace(object, at+1)
		}
	}
	return value, ok
}

// JSONText returns the value of a member as text: that of a string what it says,
// that of others their JSON. Null is as good as no member.
func JSONText(object []byte, name string) (text string, ok bool) {
	value, ok := JSONMember(object, name)
	switch {
	case !ok || isNull(value):
		return "", false
	case value[0] != '"':
		return string(value), true
	case bytes.IndexByte(value, '\\') < 0 && utf8.Valid(value):
		return string(value[1 : len(value)-1]), true
	}
	ok = json.Unmarshal(value, &text) == nil
	return text, ok
}

// mayHave says whether a name could occur in a text: as it is, or escaped.
func mayHave(text []byte, name string) bool {
	return bytes.IndexByte(text, '\\') >= 0 || bytes.Contains(text, []byte(name))
}

func keyIs(key []byte, name string) bool {
	inside := key[1 : len(key)-1]
	if bytes.IndexByte(inside, '\\') < 0 {
		return string(inside) == name
	}
	var text string
	return json.Unmarshal(key, &text) == nil && text == name
}

func skipSpace(text []byte, at int) int {
	for at < len(text) && text[at] <= ' ' {
		at++
	}
	return at
}

// skipString returns where the string that begins at at ends.
func skipString(text []byte, at int) int {
	for at++; text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at + 1
}

// skipValue returns where the value that begins at at ends.
func skipValue(text []byte, at int) int {
	depth := 0
	for at < len(text) {
		switch text[at] {
		case '"':
			at = skipString(text, at)
			if depth == 0 {
				return at
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return at // the end of a number or word
			}
			if depth--; depth == 0 {
				return at + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return at
			}
		}
		at++
	}
	return at
}
