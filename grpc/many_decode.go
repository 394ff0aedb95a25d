package grpcapi

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	v2 "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/grpc/query"
	"github.com/annalsdb/annals/internal/jsontext"
)

// Names that the schema of a record has among its properties, in the order of these names. Readers
// of events know them: do not change.
const (
	propertySchemaFormat = "$schema.format"
	propertySchemaID     = "$schema.id"
	propertySchemaName   = "$schema.name"
)

// formats are the formats of schemas by their numbers, as properties have them.
var formats = [...]string{1: "Json", 2: "Protobuf", 3: "Avro", 4: "Bytes"}

const formatJSON = 1

// record is an event for one of several streams.
type record struct {
	stream  string // of AppendRecords alone
	event   event.Proposed
	hasID   bool
	place   int   // in its message
	wrong   error // the first thing that is; nil: it is right
	unknown error // a field that this server does not know, which comes before others
	late    bool  // the message is refused for a record before it

	properties []property
	schema     schema
}

// property is one of the properties of a record, as JSON.
type property struct {
	name  string
	value []byte
}

type schema struct {
	given  bool
	format int32
	name   []byte
	id     []byte // nil: it has none
}

// note keeps the first thing that is wrong.
func (r *record) note(field, format string, args ...any) {
	if r.wrong == nil && !r.late {
		field = fmt.Sprintf("records[%d].%s", r.place, field)
		r.wrong = badField(field, field+": "+fmt.Sprintf(format, args...))
	}
}

// decodeRecord takes one record more of a message.
func decodeRecord(all *[]record, b []byte) bool {
	n := len(*all)
	late := n > 0 && ((*all)[n-1].late || (*all)[n-1].wrong != nil || (*all)[n-1].unknown != nil)
	*all = append(*all, record{place: n, late: late})
	return (*all)[n].decode(b)
}

// foreign notes the field that was read last if it may not be there.
func (r *record) foreign(f *fields, message string) {
	if r.unknown == nil && !r.late {
		r.unknown = f.unknown(message)
	}
}

// unknown is what is wrong with the field that was read last; nil: it may be there.
func (f *fields) unknown(message string) error {
	return unknownField(message, protowire.Number(f.tag>>3))
}

func (r *record) decode(b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			r.hasID = true
			f.broken = !r.decodeID(f.bytes)
		case 2<<3 | isBytes:
			f.broken = !r.decodeProperty(f.bytes)
		case 3<<3 | isBytes:
			f.broken = !r.decodeSchema(f.bytes)
		case 4<<3 | isBytes:
			r.event.Data = f.bytes
		case 5<<3 | isBytes:
			r.stream, f.broken = string(f.bytes), !utf8.Valid(f.bytes)
		default:
			r.foreign(&f, "AppendRecord")
		}
	}
	r.describe()
	return !f.broken
}

func (r *record) decodeID(b []byte) bool {
	var err error
	if r.event.ID, err = event.ParseID(b); err != nil {
		r.note("record_id", "%.64q is not a UUID", b)
	}
	return utf8.Valid(b)
}

// decodeProperty takes an entry of the map of properties.
func (r *record) decodeProperty(b []byte) bool {
	var p property
	var value []byte
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case fieldKey<<3 | isBytes:
			p.name, f.broken = string(f.bytes), !utf8.Valid(f.bytes)
		case fieldValue<<3 | isBytes:
			value = append(value, f.bytes...) // So they merge.
		default:
			r.foreign(&f, "AppendRecord.PropertiesEntry")
		}
	}
	if f.broken {
		return false
	}
	if p.name == "" {
		r.note("properties", "the name of a property is empty")
	}
	// Most clients send texts alone.
	if f := (fields{rest: value}); f.next() && f.tag == 3<<3|isBytes && len(f.rest) == 0 {
		p.value = jsontext.AppendString(nil, f.bytes)
		r.properties = append(r.properties, p)
		return utf8.Valid(f.bytes)
	}
	var v structpb.Value
	if proto.Unmarshal(value, &v) != nil {
		return false
	}
	if r.unknown == nil && !r.late {
		r.unknown = onlyKnown(v.ProtoReflect())
	}
	var err error
	if p.value, err = appendValue(nil, &v); err != nil {
		r.note("properties", "%s", err)
	}
	r.properties = append(r.properties, p)
	return true
}

func (r *record) decodeSchema(b []byte) bool {
	s := &r.schema
	s.given = true
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | isNumber:
			s.format = int32(f.number)
		case 2<<3 | isBytes:
			s.name, f.broken = f.bytes, !utf8.Valid(f.bytes)
		case 3<<3 | isBytes:
			s.id, f.broken = f.bytes, !utf8.Valid(f.bytes)
		default:
			r.foreign(&f, "SchemaInfo")
		}
	}
	return !f.broken
}

// describe makes type and metadata of the event.
func (r *record) describe() {
	s := &r.schema
	switch {
	case !s.given:
		r.note("schema", "it is missing")
	case s.format <= 0 || int(s.format) >= len(formats):
		r.note("schema.format", "%d is not a format", s.format)
	case len(s.name) == 0:
		r.note("schema.name", "it is missing")
	}
	if r.wrong != nil || r.unknown != nil || r.late {
		return
	}
	r.event.Type = string(s.name)
	if s.format == formatJSON {
		r.event.Flags = event.FlagJSON
	}
	r.properties = append(r.properties, property{propertySchemaFormat, jsontext.AppendString(nil, formats[s.format])},
		property{propertySchemaName, jsontext.AppendString(nil, s.name)})
	if s.id != nil {
		r.properties = append(r.properties, property{propertySchemaID, jsontext.AppendString(nil, s.id)})
	}
	slices.SortStableFunc(r.properties, func(a, b property) int { return cmp.Compare(a.name, b.name) })
	size := 2
	for i := range r.properties {
		size += len(r.properties[i].name) + len(r.properties[i].value) + len(`"":,`)
	}
	b := append(make([]byte, 0, size), '{')
	for i := range r.properties {
		p := &r.properties[i]
		if i+1 < len(r.properties) && r.properties[i+1].name == p.name {
			continue // The last one counts.
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(jsontext.AppendString(b, p.name), ':'), p.value...)
	}
	r.event.Metadata = append(b, '}')
	r.properties = nil
}

// ownRecords gives data bytes of their own, which lay in a message.
func ownRecords(all []record) {
	size := 0
	for i := range all {
		size += len(all[i].event.Data)
	}
	room := make([]byte, 0, size)
	for i := range all {
		all[i].schema = schema{}
		if e := &all[i].event; e.Data != nil {
			at := len(room)
			room = append(room, e.Data...)
			e.Data = room[at:len(room):len(room)]
		}
	}
}

// sessionRequest is a message of AppendSession: what one stream gets.
type sessionRequest struct {
	stream   string
	records  []record
	expected int64 // event.AnyVersion: nothing
	unknown  error
}

func (r *sessionRequest) generated() proto.Message { return new(v2.AppendRequest) }

func (r *sessionRequest) decode(b []byte) bool {
	*r = sessionRequest{expected: event.AnyVersion}
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			r.stream, f.broken = string(f.bytes), !utf8.Valid(f.bytes)
		case 2<<3 | isBytes:
			f.broken = !decodeRecord(&r.records, f.bytes)
		case 3<<3 | isNumber:
			r.expected = protowire.DecodeZigZag(f.number)
		default:
			r.unknown = cmp.Or(r.unknown, f.unknown("AppendRequest"))
		}
	}
	ownRecords(r.records)
	return !f.broken
}

// recordsRequest is the message of AppendRecords, or that of Append of the service of queries: it
// has other checks, and conditions.
type recordsRequest struct {
	conditional bool
	records     []record
	checks      []streamCheck
	conditions  []condition // where it is conditional
	unknown     error
}

// streamCheck is what one stream must be like.
type streamCheck struct {
	given    bool
	stream   string
	expected int64
}

func (r *recordsRequest) generated() proto.Message {
	if r.conditional {
		return new(query.AppendReq)
	}
	return new(v2.AppendRecordsRequest)
}

func (r *recordsRequest) decode(b []byte) bool {
	*r = recordsRequest{conditional: r.conditional}
	name := "AppendRecordsRequest"
	if r.conditional {
		name = "AppendReq"
	}
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.tag == 1<<3|isBytes:
			f.broken = !decodeRecord(&r.records, f.bytes)
		case f.tag == 2<<3|isBytes:
			f.broken = !r.decodeCheck(f.bytes)
		case f.tag == 3<<3|isBytes && r.conditional:
			f.broken = !r.decodeCondition(f.bytes)
		default:
			r.unknown = cmp.Or(r.unknown, f.unknown(name))
		}
	}
	ownRecords(r.records)
	return !f.broken
}

func (r *recordsRequest) decodeCheck(b []byte) bool {
	r.checks = append(r.checks, streamCheck{})
	c := &r.checks[len(r.checks)-1]
	if r.conditional {
		return r.decodeState(c, b, "AppendReq.StreamCheck")
	}
	f := fields{rest: b}
	for f.next() {
		if f.tag != 1<<3|isBytes {
			r.unknown = cmp.Or(r.unknown, f.unknown("ConsistencyCheck"))
			continue
		}
		f.broken = !r.decodeState(c, f.bytes, "ConsistencyCheck.StreamStateCheck")
	}
	return !f.broken
}

// decodeState takes what a stream must be like, of a message with a name.
func (r *recordsRequest) decodeState(c *streamCheck, b []byte, name string) bool {
	c.given = true
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			c.stream, f.broken = string(f.bytes), !utf8.Valid(f.bytes)
		case 2<<3 | isNumber:
			c.expected = protowire.DecodeZigZag(f.number)
		default:
			r.unknown = cmp.Or(r.unknown, f.unknown(name))
		}
	}
	return !f.broken
}
