package streams

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/internal/jsontext"
)

// Members of the body of a write to several streams, and where their values are. Their names are
// part of the wire: do not change.
var (
	manyNames  = []string{manyEvents: "events", manyChecks: "checks", manyStream: "stream"}
	checkNames = []string{checkStream: "stream", checkVersion: "expectedVersion"}
	eventNames = []string{
		eventStream: "stream", eventID: "eventId", eventType: "eventType", eventData: "data", eventMetadata: "metadata", eventBase64: "dataBase64",
	}
)

const (
	manyEvents = iota
	manyChecks
	manyStream
	manyMembers
)

const (
	checkStream = iota
	checkVersion
	checkMembers
)

const (
	eventStream = iota
	eventID
	eventType
	eventData
	eventMetadata
	eventBase64
	eventMembers
)

// versionWords are the expected versions that have a word.
var versionWords = map[string]int64{
	"none": event.NoStream, "any": event.AnyVersion, "exists": event.StreamExists, "deleted": event.SoftDeleted, "tombstoned": event.Tombstoned,
}

// manyBody is the body of a write to several streams while it is read.
type manyBody struct {
	*api.Gathering
	stream string // of events that name none
	types  writeBatch
	// wrong is about the first value that must not be written. The rest of the body is still read:
	// a body that cannot be understood is the graver error, and rights to its streams come first.
	wrong error
}

// decodeMany gathers what a body asks for. Its error is about the shape of the body, wrong about
// the first value that is not allowed. The events refer to bytes of the body.
func decodeMany(body []byte, g *api.Gathering) (wrong, err error) {
	body = bytes.TrimPrefix(body, args.ByteOrderMark)
	if !utf8.Valid(body) || !jsontext.IsObject(body) {
		return nil, problem.InvalidBody
	}
	b := manyBody{Gathering: g}
	var v [manyMembers]args.Member
	at := jsontext.Space(body, 0)
	if err := membersOf(body, at, spot{}, manyNames, v[:]); err != nil {
		return nil, err
	}
	if v[manyStream].IsGiven() {
		if v[manyStream].Kind != jsontext.String {
			return nil, problem.Bad("stream must be a text.")
		}
		b.stream = v[manyStream].Text()
	}
	if err := b.each(manyNames[manyChecks], v[manyChecks], b.check); err != nil {
		return nil, err
	}
	if err := b.each(manyNames[manyEvents], v[manyEvents], b.event); err != nil {
		return nil, err
	}
	if written, _ := g.Streams(); len(written) == 0 && b.wrong == nil {
		return nil, problem.Bad("events is missing or empty.")
	}
	return b.wrong, nil
}

// spot is where in a body something stands. The zero value is the body itself.
type spot struct {
	list  string
	index int
}

// bad is an answer to what is wrong at a place.
func (p spot) bad(format string, a ...any) error {
	text := fmt.Sprintf(format, a...)
	if p.list != "" {
		text = fmt.Sprintf("%s[%d]: %s", p.list, p.index, text)
	}
	return problem.Bad(text)
}

// membersOf finds the values of an object that begins at body[at]. Each of its members must have
// one of the names, in any case, and no two the same.
func membersOf(body []byte, at int, p spot, names []string, values []args.Member) error {
	if body[at] != '{' {
		return p.bad("must be an object.")
	}
	m := jsontext.ObjectAt(body, at)
	for m.Next() {
		i := indexOf(names, m.Name)
		switch {
		case i < 0:
			return p.bad("%.100q is not a member that is known here.", jsontext.Unquote(nil, m.Name))
		case values[i].Kind != jsontext.Invalid:
			return p.bad("%s is there twice.", names[i])
		}
		values[i] = args.Member{Raw: m.Value, Kind: m.Kind}
	}
	return nil
}

// indexOf finds the name that a quoted one is in any case; -1: none.
func indexOf(names []string, quoted []byte) int {
	for i, name := range names {
		if len(quoted) == len(name)+2 && string(quoted[1:len(quoted)-1]) == name {
			return i
		}
	}
	text := string(jsontext.Unquote(nil, quoted))
	for i, name := range names {
		if strings.EqualFold(text, name) {
			return i
		}
	}
	return -1
}

// each takes the elements of a list, which may be missing.
func (b *manyBody) each(list string, v args.Member, take func(p spot, raw []byte) error) error {
	if !v.IsGiven() {
		return nil
	}
	if v.Kind != jsontext.Array {
		return problem.Bad(list + " must be an array.")
	}
	elements := jsontext.ArrayAt(v.Raw, 0)
	for i := 0; elements.Next(); i++ {
		if err := take(spot{list, i}, elements.Value); err != nil {
			return err
		}
	}
	return nil
}

// check takes an element of checks.
func (b *manyBody) check(p spot, raw []byte) error {
	var v [checkMembers]args.Member
	if err := membersOf(raw, 0, p, checkNames, v[:]); err != nil {
		return err
	}
	version := v[checkVersion]
	switch stream := v[checkStream]; {
	case !stream.IsGiven():
		return p.bad("stream is missing.")
	case stream.Kind != jsontext.String:
		return p.bad("stream must be a text.")
	case !version.IsGiven():
		return p.bad("expectedVersion is missing.")
	case version.Kind != jsontext.String && version.Kind != jsontext.Number:
		return p.bad("expectedVersion must be a number or a text.")
	}
	expected, ok := int64(event.AnyVersion), false
	if version.Kind == jsontext.String {
		expected, ok = versionWords[version.Text()]
	} else {
		n, err := strconv.ParseInt(string(version.Raw), 10, 64)
		if ok = err == nil; ok {
			expected = n
		}
	}
	err := b.Check(v[checkStream].Text(), expected)
	if !ok || expected == event.AnyVersion {
		err = &api.InvalidAppend{Text: "expectedVersion must be the number of an event, none, exists, deleted or tombstoned."}
	}
	b.note(p, err)
	return nil
}

// event takes an element of events.
func (b *manyBody) event(p spot, raw []byte) error {
	var v [eventMembers]args.Member
	if err := membersOf(raw, 0, p, eventNames, v[:]); err != nil {
		return err
	}
	for _, i := range []int{eventStream, eventID, eventType, eventBase64} {
		if v[i].IsGiven() && v[i].Kind != jsontext.String {
			return p.bad("%s must be a text.", eventNames[i])
		}
	}
	stream := b.stream
	if v[eventStream].IsGiven() {
		stream = v[eventStream].Text()
	} else if stream == "" {
		return p.bad("stream is missing.")
	}
	e, wrong := b.proposed(&v)
	if err := b.Add(stream, e); wrong == nil { // It names the stream in any case.
		wrong = err
	}
	b.note(p, wrong)
	return nil
}

// proposed makes an event of its members.
func (b *manyBody) proposed(v *[eventMembers]args.Member) (e event.Proposed, err error) {
	if !v[eventID].IsGiven() {
		return e, &api.InvalidAppend{Text: "eventId is missing."}
	}
	if e.ID, err = event.ParseID(jsontext.Unquote(nil, v[eventID].Raw)); err != nil {
		return e, &api.InvalidAppend{Text: "eventId is not a GUID."}
	}
	if !v[eventType].IsGiven() {
		return e, &api.InvalidAppend{Text: "eventType is missing."}
	}
	e.Type = b.types.typeName(jsontext.Unquote(nil, v[eventType].Raw))
	data, metadata := storedValue(v[eventData]), storedValue(v[eventMetadata])
	e.Data, e.Metadata = data.bytes, metadata.bytes
	if !v[eventBase64].IsGiven() {
		if data.isJSON || metadata.isJSON {
			e.Flags = event.FlagJSON
		}
		return e, nil
	}
	if v[eventData].IsGiven() {
		return e, &api.InvalidAppend{Text: "data and dataBase64 exclude each other."}
	}
	text := jsontext.Unquote(nil, v[eventBase64].Raw)
	if e.Data, err = base64.StdEncoding.Strict().AppendDecode(nil, text); err != nil {
		return e, &api.InvalidAppend{Text: "dataBase64 is not base64."}
	}
	return e, nil
}

// storedValue is jsonValue of a member that may be missing.
func storedValue(v args.Member) bodyValue {
	if !v.IsGiven() {
		return bodyValue{}
	}
	return jsonValue(v.Raw, v.Kind)
}

// note remembers the first value that is wrong.
func (b *manyBody) note(p spot, err error) {
	if err == nil || b.wrong != nil {
		return
	}
	if invalid, ok := errors.AsType[*api.InvalidAppend](err); ok {
		err = p.bad("%s", invalid.Text)
	}
	b.wrong = err
}
