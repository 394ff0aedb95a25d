package streams

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/internal/jsontext"
)

var (
	errEmptyID  = problem.Bad("Empty eventId provided.")
	errLongType = problem.Bad(fmt.Sprintf("Invalid eventType provided. It is longer than %d bytes.", event.MaxNameBytes))
)

// Members of an event in a body, and their names, which are part of the wire: do not change. An
// event of a batch has neither stream nor dataBase64: members of other names are ignored there.
const (
	eventStream = iota
	eventID
	eventType
	eventData
	eventMetadata
	eventBase64
	eventTags // in JSON alone
	eventMembers
)

var eventNames = []string{
	eventStream: "stream", eventID: "eventId", eventType: "eventType", eventData: "data", eventMetadata: "metadata", eventBase64: "dataBase64",
	eventTags: "tags",
}

// indexOf finds the name that a quoted one is in any case; -1: none.
func indexOf(names []string, quoted []byte) int {
	for i, name := range names {
		if len(quoted) == len(name)+2 && string(quoted[1:len(quoted)-1]) == name {
			return i
		}
	}
	return indexNamed(names, string(jsontext.Unquote(nil, quoted)))
}

// indexNamed is indexOf for a name without quotes.
func indexNamed(names []string, text string) int {
	return slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(text, name) })
}

// bodyValue is data or metadata as it will be stored.
type bodyValue struct {
	bytes  []byte
	isJSON bool
}

// textValue is the stored form of a text: one that is a JSON object or array as that JSON, any
// other as it is.
func textValue(text []byte) bodyValue {
	at := jsontext.Space(text, 0)
	if at < len(text) && (text[at] == '{' || text[at] == '[') {
		if end, kind := jsontext.End(text, at); kind != jsontext.Invalid && jsontext.Space(text, end) == len(text) {
			return bodyValue{text[at:end:end], true}
		}
	}
	return bodyValue{bytes: text}
}

// jsonValue is the stored form of a JSON value. A number or boolean is stored as its JSON text, and
// so is JSON.
func jsonValue(raw []byte, k jsontext.Kind) bodyValue {
	switch k {
	case jsontext.Null:
		return bodyValue{}
	case jsontext.String:
		return textValue(jsontext.Unquote(nil, raw))
	}
	return bodyValue{raw, true}
}

// writeBatch collects the events of a body.
type writeBatch struct {
	events []event.Proposed
	types  []string // seen so far, so that a type is allocated once
	// err is about the first event that must not be written. The rest of the body
	// is still read, for a body that cannot be parsed is the graver error.
	err error
}

// maxTypes bounds how many types a batch remembers.
const maxTypes = 16

func (b *writeBatch) typeName(text []byte) string {
	for _, name := range b.types {
		if name == string(text) {
			return name
		}
	}
	name := string(text)
	if len(b.types) < maxTypes {
		b.types = append(b.types, name)
	}
	return name
}

// add takes one event or, where it must not be written, remembers why.
func (b *writeBatch) add(id event.ID, typeText []byte, data, metadata bodyValue) {
	switch {
	case b.err != nil:
	case id.IsZero():
		b.err = errEmptyID
	case len(typeText) == 0:
		b.err = problem.EmptyType
	case len(typeText) > event.MaxNameBytes:
		b.err = errLongType
	case len(data.bytes)+len(metadata.bytes) > event.MaxEventBytes:
		b.err = fmt.Errorf("event %s: %w", id, event.ErrTooLarge)
	default:
		e := event.Proposed{ID: id, Type: b.typeName(typeText), Data: data.bytes, Metadata: metadata.bytes}
		if data.isJSON || metadata.isJSON {
			e.Flags = event.FlagJSON
		}
		b.events = append(b.events, e)
	}
}

// result returns the events of a body that was parsed.
func (b *writeBatch) result() ([]event.Proposed, error) {
	switch {
	case b.err != nil:
		return nil, b.err
	case len(b.events) == 0:
		return nil, problem.InvalidBody
	}
	return b.events, nil
}

// decodeJSONBatch reads an array of events, or a single one. The events refer to
// bytes of the body: the caller keeps it, and must neither change nor reuse it
// while the events are in use.
func decodeJSONBatch(body []byte) ([]event.Proposed, error) {
	body = bytes.TrimPrefix(body, args.ByteOrderMark)
	at := jsontext.Space(body, 0)
	if at == len(body) || !utf8.Valid(body) {
		return nil, problem.InvalidBody
	}
	var b writeBatch
	end, ok := 0, false
	if body[at] == '[' {
		elements := jsontext.ArrayAt(body, at)
		for {
			at, more := elements.Begin()
			if !more {
				break
			}
			if end, ok = b.addJSON(body, at); !ok {
				return nil, problem.InvalidBody
			}
			elements.Resume(end)
		}
		end, ok = elements.End()
	} else {
		end, ok = b.addJSON(body, at)
	}
	if !ok || jsontext.Space(body, end) != len(body) {
		return nil, problem.InvalidBody
	}
	return b.result()
}

// addJSON takes the event that begins at body[at] and returns where it ends. It
// reports false when no valid object begins there, or one that can be no event.
func (b *writeBatch) addJSON(body []byte, at int) (end int, ok bool) {
	var (
		id             event.ID
		typeText       []byte
		data, metadata bodyValue
		tags           []byte
		err            error
	)
	m := jsontext.ObjectAt(body, at)
	for m.Next() {
		f := indexOf(eventNames, m.Name)
		switch f {
		case eventID, eventType:
			var text []byte
			if m.Kind == jsontext.String {
				text = jsontext.Unquote(nil, m.Value)
			} else if m.Kind != jsontext.Null {
				return 0, false
			}
			if f == eventType {
				typeText = text
				continue
			}
			if id = (event.ID{}); text != nil {
				if id, err = event.ParseID(text); err != nil {
					return 0, false
				}
			}
		case eventData:
			data = jsonValue(m.Value, m.Kind)
		case eventMetadata:
			metadata = jsonValue(m.Value, m.Kind)
		case eventTags:
			tags = m.Value
		}
	}
	if end, ok = m.End(); !ok {
		return 0, false
	}
	if tags != nil {
		if metadata, err = metadata.tagged(tags); err != nil && b.err == nil {
			b.err = problem.Bad(err.Error())
		}
	}
	if b.events == nil {
		// Events of a batch are mostly of one size. An eighth more spares growing where the first
		// is a large one.
		guess := (len(body) - at) / (end - at)
		b.events = make([]event.Proposed, 0, min(1+guess+guess/8, maxGuess))
	}
	b.add(id, typeText, data, metadata)
	return end, true
}

// tagged is the stored form of metadata with the tags that were given next to them.
func (v bodyValue) tagged(tags []byte) (bodyValue, error) {
	with, err := label.WithTags(v.bytes, tags)
	return bodyValue{with, v.isJSON || len(with) > len(v.bytes)}, err
}

// maxGuess bounds how much is allocated for the first event of a body; a larger batch grows.
const maxGuess = 4096
