package streams

import (
	"bytes"

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
		switch indexOf(eventNames, m.Name) {
		case eventID:
			idText = nil
			if m.Kind == jsontext.String {
				idText = jsontext.Unquote(nil, m.Value)
			}
		case eventData:
			document = nil
			if m.Kind == jsontext.Object {
				document = m.Value
			}
		case -1, eventStream, eventBase64:
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
	return translateMembers(nil, document, systemKey), id, hasID, true
}

// translateMembers appends a valid object, in which a member becomes the one that
// translate gives: its name and value, or no name when it stays as it is. It also stays where
// its new name is a member already. Order stays, white space between members does not.
func translateMembers(dst, object []byte, translate func(name string, m *jsontext.Members) (string, []byte)) []byte {
	taken := map[string]bool{}
	for m := jsontext.ObjectAt(object, 0); m.Next(); {
		taken[string(jsontext.Unquote(nil, m.Name))] = true
	}
	dst = append(dst, '{')
	m := jsontext.ObjectAt(object, 0)
	for begun := false; m.Next(); begun = true {
		if begun {
			dst = append(dst, ',')
		}
		name, value := translate(string(jsontext.Unquote(nil, m.Name)), &m)
		if name == "" || taken[name] {
			dst = append(append(append(dst, m.Name...), ':'), m.Value...)
			continue
		}
		dst = append(append(jsontext.AppendString(dst, name), ':'), value...)
	}
	return append(dst, '}')
}

// systemKey returns the system key that a member of the metadata document stands
// for. A value of the wrong type would void the whole document under that key: it
// keeps the plain name, under which it has no effect.
func systemKey(name string, m *jsontext.Members) (key string, value []byte) {
	value = m.Value
	switch name {
	case event.PlainMaxAge:
		key = event.KeyMaxAge
	case event.PlainMaxCount:
		key = event.KeyMaxCount
	case event.PlainTruncateBefore:
		key = event.KeyTruncateBefore
	case event.PlainCacheControl:
		key, value = event.KeyCacheControl, digitsAsNumber(m.Value, m.Kind)
	case event.PlainACL:
		key = event.KeyACL
		if m.Kind == jsontext.Object {
			value = translateMembers(nil, m.Value, systemRight)
		}
	}
	if key != "" && !event.FitsKey(key, value) {
		return "", nil
	}
	return key, value
}

// systemRight returns the right that a member of the access list stands for.
func systemRight(name string, m *jsontext.Members) (string, []byte) {
	switch name {
	case "r", "w", "d", "mr", "mw":
		return "$" + name, m.Value
	}
	return "", nil
}

// digitsAsNumber returns the number that a string of digits says, and any other value as it is.
func digitsAsNumber(raw []byte, k jsontext.Kind) []byte {
	if k != jsontext.String {
		return raw
	}
	text := jsontext.Unquote(nil, raw)
	if len(text) == 0 || len(bytes.Trim(text, "0123456789")) > 0 {
		return raw
	}
	if number := bytes.TrimLeft(text, "0"); len(number) > 0 { // JSON has no leading zeros.
		return number
	}
	return text[:1]
}
