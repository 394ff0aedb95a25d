package streams

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/internal/jsontext"
)

// Members of the body of a write to several streams, and where their values are. Their names are
// part of the wire: do not change.
var (
	manyNames = []string{
		manyEvents: "events", manyChecks: "checks", manyStream: "stream", manyConditions: "conditions", manyCondition: "condition",
	}
	conditionNames = []string{"failIfEventsMatch", "after"}
	checkNames     = []string{"stream", "expectedVersion"}
)

const (
	manyEvents = iota
	manyChecks
	manyStream
	manyConditions
	manyCondition
	manyMembers
)

// manyBody is the body of a write to several streams while it is read.
type manyBody struct {
	*api.Gathering
	body   []byte
	stream string // of events that name none
	looked bool   // for it
	types  writeBatch
	// wrong is about the first value that must not be written. The rest of the body is still read:
	// a body that cannot be understood is the graver error, and rights to its streams come first.
	wrong error
}

// decodeMany gathers what a body asks for. Its error is about the shape of the body, wrong about
// the first value that is not allowed. The events refer to bytes of the body.
func decodeMany(body []byte, g *api.Gathering) (wrong, err error) {
	body = bytes.TrimPrefix(body, args.ByteOrderMark)
	at := jsontext.Space(body, 0)
	if !begins(body, at, '{') || !utf8.Valid(body) {
		return nil, problem.InvalidBody
	}
	b := manyBody{Gathering: g, body: body}
	takes := [manyMembers]func(p spot, at int) (end int, err error){manyEvents: b.event, manyChecks: b.check, manyConditions: b.condition}
	var seen [manyMembers]bool
	m := jsontext.ObjectAt(body, at)
	for {
		at, more := m.Begin()
		if !more {
			break
		}
		i := indexOf(manyNames, m.Name)
		if i >= 0 && seen[i] {
			return nil, spot{}.twice(manyNames[i])
		}
		end, kind := at, jsontext.Array
		switch {
		case i < 0:
			return nil, spot{}.unknown(m.Name)
		case takes[i] != nil && begins(body, at, '['):
			end, err = b.each(manyNames[i], at, takes[i])
		case i == manyCondition:
			end, err = b.condition(spot{manyNames[i], 0}, at)
		default:
			end, kind = jsontext.End(body, at)
		}
		switch {
		case err != nil:
			return nil, err
		case kind == jsontext.Invalid:
			return nil, problem.InvalidBody
		case kind == jsontext.Null:
		case i == manyStream && kind != jsontext.String:
			return nil, problem.Bad("stream must be a text.")
		case i != manyStream && kind != jsontext.Array:
			return nil, problem.Bad(manyNames[i] + " must be an array.")
		}
		seen[i] = true
		m.Resume(end)
	}
	if end, ok := m.End(); !ok || jsontext.Space(body, end) != len(body) {
		return nil, problem.InvalidBody
	}
	if seen[manyCondition] && seen[manyConditions] {
		return nil, problem.Bad("condition and conditions exclude each other.")
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

func (p spot) twice(name string) error { return p.bad("%s is there twice.", name) }

func (p spot) unknown(name []byte) error {
	return p.bad("%.100q is not a member that is known here.", jsontext.Unquote(nil, name))
}

// membersOf finds the values of an object that begins at body[at], and where it ends. Each of its
// members must have one of the names, in any case, and no two the same.
func membersOf(body []byte, at int, p spot, names []string, values []args.Member) (end int, err error) {
	if !begins(body, at, '{') {
		return at, p.bad("must be an object.")
	}
	m := jsontext.ObjectAt(body, at)
	for m.Next() {
		i := indexOf(names, m.Name)
		switch {
		case i < 0:
			return at, p.unknown(m.Name)
		case values[i].Kind != jsontext.Invalid:
			return at, p.twice(names[i])
		}
		values[i] = args.Member{Raw: m.Value, Kind: m.Kind}
	}
	end, ok := m.End()
	if !ok {
		return at, problem.InvalidBody
	}
	return end, nil
}

// begins reports whether a value that begins at body[at], where the body may end, is one of a kind.
func begins(body []byte, at int, c byte) bool { return at < len(body) && body[at] == c }

// each takes the elements of a list that begins at body[at].
func (b *manyBody) each(list string, at int, take func(p spot, at int) (end int, err error)) (end int, err error) {
	elements := jsontext.ArrayAt(b.body, at)
	for i := 0; ; i++ {
		at, more := elements.Begin()
		if !more {
			break
		}
		if end, err = take(spot{list, i}, at); err != nil {
			return at, err
		}
		elements.Resume(end)
	}
	end, ok := elements.End()
	if !ok {
		return at, problem.InvalidBody
	}
	return end, nil
}

// check takes the element of checks that begins at body[at].
func (b *manyBody) check(p spot, at int) (end int, err error) {
	var v [2]args.Member
	if end, err = membersOf(b.body, at, p, checkNames, v[:]); err != nil {
		return at, err
	}
	stream, version := v[0], v[1]
	switch {
	case !stream.IsGiven():
		return at, p.bad("stream is missing.")
	case stream.Kind != jsontext.String:
		return at, p.bad("stream must be a text.")
	case !version.IsGiven():
		return at, p.bad("expectedVersion is missing.")
	case version.Kind != jsontext.String && version.Kind != jsontext.Number:
		return at, p.bad("expectedVersion must be a number or a text.")
	}
	expected, ok := int64(event.AnyVersion), false
	if version.Kind == jsontext.String {
		expected, ok = event.VersionOf(version.Text())
	} else if n, err := strconv.ParseInt(string(version.Raw), 10, 64); err == nil {
		expected, ok = n, true
	}
	wrong := b.Check(stream.Text(), expected)
	if !ok || expected == event.AnyVersion {
		wrong = &event.BadRequest{Text: "expectedVersion must be the number of an event, none, exists, deleted or tombstoned."}
	}
	b.note(p, wrong)
	return end, nil
}

// condition takes the element of conditions, or the only one, that begins at body[at].
func (b *manyBody) condition(p spot, at int) (end int, err error) {
	var v [2]args.Member
	if end, err = membersOf(b.body, at, p, conditionNames, v[:]); err != nil {
		return at, err
	}
	if !v[0].IsGiven() {
		return at, p.bad("failIfEventsMatch is missing.")
	}
	q, err := label.ReadQuery(v[0].Raw)
	if err != nil {
		return at, p.bad("failIfEventsMatch: %v", err)
	}
	after, ok := positionOf(v[1])
	if !ok {
		return at, p.bad("after must be a position.")
	}
	b.note(p, b.Condition(q, after))
	return end, nil
}

// event takes the element of events that begins at body[at].
func (b *manyBody) event(p spot, at int) (end int, err error) {
	var v [eventMembers]args.Member
	if end, err = membersOf(b.body, at, p, eventNames, v[:]); err != nil {
		return at, err
	}
	if p.index == 0 {
		b.Grow(min(1+(len(b.body)-at)/(end-at), maxGuess))
	}
	for _, i := range [...]int{eventStream, eventID, eventType, eventBase64} {
		if v[i].IsGiven() && v[i].Kind != jsontext.String {
			return at, p.bad("%s must be a text.", eventNames[i])
		}
	}
	var stream string
	if v[eventStream].IsGiven() {
		stream = v[eventStream].Text()
	} else if stream = b.ownStream(); stream == "" {
		return at, p.bad("stream is missing.")
	}
	e, wrong := b.proposed(&v)
	if err := b.Add(stream, e); wrong == nil { // It names the stream in any case.
		wrong = err
	}
	b.note(p, wrong)
	return end, nil
}

// ownStream is the stream that the body names for events that name none; it may come after them.
func (b *manyBody) ownStream() string {
	if b.looked {
		return b.stream
	}
	b.looked = true
	m := jsontext.ObjectAt(b.body, jsontext.Space(b.body, 0))
	for m.Next() {
		if m.Kind == jsontext.String && indexOf(manyNames, m.Name) == manyStream {
			b.stream = string(jsontext.Unquote(nil, m.Value))
		}
	}
	return b.stream
}

// proposed makes an event of its members.
func (b *manyBody) proposed(v *[eventMembers]args.Member) (e event.Proposed, err error) {
	if !v[eventID].IsGiven() {
		return e, &event.BadRequest{Text: "eventId is missing."}
	}
	if e.ID, err = event.ParseID(jsontext.Unquote(nil, v[eventID].Raw)); err != nil {
		return e, &event.BadRequest{Text: "eventId is not a GUID."}
	}
	if !v[eventType].IsGiven() {
		return e, &event.BadRequest{Text: "eventType is missing."}
	}
	e.Type = b.types.typeName(jsontext.Unquote(nil, v[eventType].Raw))
	data, metadata := storedValue(v[eventData]), storedValue(v[eventMetadata])
	if tags := v[eventTags]; tags.IsGiven() {
		if metadata, err = metadata.tagged(tags.Raw); err != nil {
			return e, err
		}
	}
	e.Data, e.Metadata = data.bytes, metadata.bytes
	if !v[eventBase64].IsGiven() {
		if data.isJSON || metadata.isJSON {
			e.Flags = event.FlagJSON
		}
		return e, nil
	}
	if v[eventData].IsGiven() {
		return e, &event.BadRequest{Text: "data and dataBase64 exclude each other."}
	}
	text := jsontext.Unquote(nil, v[eventBase64].Raw)
	if e.Data, err = base64.StdEncoding.Strict().AppendDecode(nil, text); err != nil {
		return e, &event.BadRequest{Text: "dataBase64 is not base64."}
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
	if bad, ok := errors.AsType[*event.BadRequest](err); ok {
		err = p.bad("%s", bad.Text)
	}
	b.wrong = err
}
