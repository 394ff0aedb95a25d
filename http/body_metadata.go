package httpapi

import (
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
)

// translateMetadataItem recognises a stream's metadata written as an item: an
// object with a data object and no members but those of an event. It returns the
// metadata document, in which the plain names of system keys have become the
// stored ones, and the item's own id when it has one.
//
// Any other body is not an item, and is the metadata document itself if it is anything.
func translateMetadataItem(body []byte) (data []byte, id event.ID, hasID, isItem bool) {
	var (
		document []byte
		idText   []byte
	)
	m := jsontext.ObjectAt(body, jsontext.Space(body, 0))
	for m.Next() {
		switch fieldQuoted(m.Name) {
		case fieldID:
			idText = nil
			if m.Kind == jsontext.String {
				idText = jsontext.Unquote(nil, m.Value)
			}
		case fieldData:
			document = nil
			if m.Kind == jsontext.Object {
				document = m.Value
			}
		case fieldNone:
			return nil, event.ID{}, false, false
		}
	}
	end, ok := m.End()
	if !ok || document == nil || jsontext.Space(body, end) != len(body) {
		return nil, event.ID{}, false, false
	}
	if parsed, err := event.ParseID(idText); err == nil && !parsed.IsZero() {
		id, hasID = parsed, true
	}
	return translateMembers(nil, document, translateSystemKey), id, hasID, true
}

// translateMembers appends a valid object with the names, and where they depend
// on them the values, that translate gives. Order stays, white space between
// members does not.
func translateMembers(dst, object []byte, translate func(dst, name []byte, m *jsontext.Members) []byte) []byte {
	dst = append(dst, '{')
	m := jsontext.ObjectAt(object, 0)
	for begun := false; m.Next(); begun = true {
		if begun {
			dst = append(dst, ',')
		}
		dst = translate(dst, jsontext.Unquote(nil, m.Name), &m)
	}
	return append(dst, '}')
}

// translateSystemKey appends one member of the metadata document.
func translateSystemKey(dst, name []byte, m *jsontext.Members) []byte {
	switch string(name) {
	case "maxAge":
		return appendMember(dst, event.KeyMaxAge, m.Value)
	case "maxCount":
		return appendMember(dst, event.KeyMaxCount, m.Value)
	case "truncateBefore":
		return appendMember(dst, event.KeyTruncateBefore, m.Value)
	case "cacheControl":
		return appendMember(dst, event.KeyCacheControl, digitsAsNumber(m.Value, m.Kind))
	case "acl":
		if m.Kind != jsontext.Object {
			return appendMember(dst, event.KeyACL, m.Value)
		}
		dst = append(jsontext.AppendString(dst, event.KeyACL), ':')
		return translateMembers(dst, m.Value, translateRight)
	}
	return append(append(append(dst, m.Name...), ':'), m.Value...)
}

// translateRight appends one member of the access list.
func translateRight(dst, name []byte, m *jsontext.Members) []byte {
	switch string(name) {
	case "r", "w", "d", "mr", "mw":
		return appendMember(dst, "$"+string(name), m.Value)
	}
	return append(append(append(dst, m.Name...), ':'), m.Value...)
}

func appendMember(dst []byte, name string, value []byte) []byte {
	return append(append(jsontext.AppendString(dst, name), ':'), value...)
}

// digitsAsNumber returns the number that a string of digits says, and any other value as it is.
func digitsAsNumber(raw []byte, k jsontext.Kind) []byte {
	if k != jsontext.String {
		return raw
	}
	text := jsontext.Unquote(nil, raw)
	for _, c := range text {
		if c < '0' || c > '9' {
			return raw
		}
	}
	for len(text) > 1 && text[0] == '0' { // JSON has no leading zeros.
		text = text[1:]
	}
	if len(text) == 0 {
		return raw
	}
	return text
}
