package grpcapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	v2 "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/grpc/query"
)

// As the hand decoders have it, what the generated messages have.

func wireIDOf(u *shared.UUID) (id wireID) {
	switch v := u.GetValue().(type) {
	case *shared.UUID_Structured_:
		s := &wireID{}
		raw, _ := proto.Marshal(v.Structured)
		s.halves(raw)
		return wireID{form: fieldStructured<<3 | isBytes, id: s.id}
	case *shared.UUID_String_:
		id.form = fieldText<<3 | isBytes
		if id.id, id.err = event.ParseID(v.String_); id.err != nil {
			id.err = invalid("%q is not a UUID", v.String_)
		}
	}
	return id
}

func proposalOf(m interface {
	GetId() *shared.UUID
	GetMetadata() map[string]string
	GetCustomMetadata() []byte
	GetData() []byte
}) proposal {
	p := proposal{id: wireIDOf(m.GetId()), metadata: bytes.Clone(m.GetCustomMetadata()), data: bytes.Clone(m.GetData())}
	if kind, ok := m.GetMetadata()[mapType]; ok {
		p.kind = []byte(kind)
	}
	var content string
	content, p.hasContentType = m.GetMetadata()[mapContentType]
	p.isJSON = content == contentJSON
	return p
}

func optionsOf[E any](stream *shared.StreamIdentifier, set bool, revision uint64, noStream, anyVersion, exists *E) (o appendOptions) {
	if stream != nil {
		o.stream = new(string(stream.GetStreamName()))
	}
	mark := func(e *E) *struct{} {
		if e == nil {
			return nil
		}
		return &struct{}{}
	}
	o.expected = expectation{set, revision, mark(noStream), mark(anyVersion), mark(exists)}
	return o
}

// sameEvents compares events; one that has no bytes may have none in two ways.
func sameEvents(a, b []proposal) bool {
	for _, all := range [][]proposal{a, b} {
		for i := range all {
			for _, f := range []*[]byte{&all[i].metadata, &all[i].data} {
				if len(*f) == 0 {
					*f = nil
				}
			}
		}
	}
	return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b))
}

// same is what an independent decoder makes of a message.
func same(t *testing.T, raw []byte, got byHand) bool {
	want := got.generated()
	ok := got.decode(raw)
	if err := proto.Unmarshal(raw, want); (err == nil) != ok {
		t.Fatalf("%T of %x: %v, and generated: %v", got, raw, ok, err)
	} else if err != nil {
		return true
	}
	switch g := got.(type) {
	case *appendRequest:
		w, all := want.(*streams.AppendReq), appendRequest{}
		if o := w.GetOptions(); o != nil {
			all.isOptions = true
			all.options = optionsOf(o.StreamIdentifier, o.ExpectedStreamRevision != nil, o.GetRevision(), o.GetNoStream(), o.GetAny(), o.GetStreamExists())
		}
		if m := w.GetProposedMessage(); m != nil {
			all.isEvent, all.event[0] = true, proposalOf(m)
		}
		return sameEvents(g.event[:], all.event[:]) && reflect.DeepEqual(*g, all)
	case *batchRequest:
		w := want.(*streams.BatchAppendReq)
		all := batchRequest{correlation: g.correlation, id: wireIDOf(w.CorrelationId), isFinal: w.IsFinal, hasOptions: w.Options != nil, events: g.events}
		if o := w.Options; o != nil {
			all.options = optionsOf(o.StreamIdentifier, o.ExpectedStreamPosition != nil, o.GetStreamPosition(), o.GetNoStream(), o.GetAny(), o.GetStreamExists())
			switch d := o.DeadlineOption.(type) {
			case *streams.BatchAppendReq_Options_Deadline:
				all.options.deadline, all.options.until = isDeadline, moment{d.Deadline.GetSeconds(), d.Deadline.GetNanos()}
			case *streams.BatchAppendReq_Options_Deadline_21_10_0:
				all.options.deadline, all.options.until = isDeadlineAt, moment{d.Deadline_21_10_0.GetSeconds(), d.Deadline_21_10_0.GetNanos()}
			}
		}
		var events []proposal
		for _, m := range w.ProposedMessages {
			events = append(events, proposalOf(m))
		}
		var echoed shared.UUID
		if proto.Unmarshal(g.correlation, &echoed) != nil || !proto.Equal(&echoed, w.CorrelationId) && w.CorrelationId != nil {
			t.Errorf("the correlation of %x is %v", raw, &echoed)
		}
		return sameEvents(g.events, events) && reflect.DeepEqual(*g, all)
	case *groupAnswer:
		all := groupAnswer{}
		take := func(ids []*shared.UUID) {
			for _, u := range ids {
				id := wireIDOf(u)
				of, err := id.get()
				if all.ids = append(all.ids, of); all.err == nil {
					all.err = err
				}
			}
		}
		switch m := want.(*persistent.ReadReq).Content.(type) {
		case *persistent.ReadReq_Ack_:
			all.form, all.action = isAck, g.action
			take(m.Ack.GetIds())
		case *persistent.ReadReq_Nack_:
			all.form, all.action, all.reason = isNack, m.Nack.GetAction(), m.Nack.GetReason()
			take(m.Nack.GetIds())
		}
		return reflect.DeepEqual(*g, all)
	case *sessionRequest:
		w := want.(*v2.AppendRequest)
		expected := event.AnyVersion
		if w.ExpectedRevision != nil {
			expected = *w.ExpectedRevision
		}
		return g.stream == w.Stream && g.expected == expected && sameRecords(t, g.records, w.Records) && (g.unknown != nil) == (len(w.ProtoReflect().GetUnknown()) > 0)
	case *recordsRequest:
		if g.conditional {
			return sameConditional(t, g, want.(*query.AppendReq))
		}
		w := want.(*v2.AppendRecordsRequest)
		unknown := len(w.ProtoReflect().GetUnknown()) > 0
		for i, c := range w.Checks {
			state := c.GetStreamState()
			if g.checks[i] != (streamCheck{state != nil, state.GetStream(), state.GetExpectedState()}) {
				return false
			}
			unknown = unknown || onlyKnown(c.ProtoReflect()) != nil
		}
		return len(g.checks) == len(w.Checks) && sameRecords(t, g.records, w.Records) && (g.unknown != nil) == unknown
	}
	return false
}

func sameConditional(t *testing.T, g *recordsRequest, w *query.AppendReq) bool {
	unknown := len(w.ProtoReflect().GetUnknown()) > 0
	for i, c := range w.Checks {
		if g.checks[i] != (streamCheck{true, c.Stream, c.ExpectedState}) {
			return false
		}
		unknown = unknown || onlyKnown(c.ProtoReflect()) != nil
	}
	for i, c := range w.Conditions[:min(len(w.Conditions), api.MaxConditions)] {
		of, wrong := queryOf(c.Query)
		if got := &g.conditions[i]; !reflect.DeepEqual(got.query, of) || wrong == nil && c.After != nil && *c.After >= 0 && got.after != *c.After {
			return false
		}
		unknown = unknown || onlyKnown(c.ProtoReflect()) != nil
	}
	records := make([]*v2.AppendRecord, len(w.Records)) // The same numbers.
	for i, r := range w.Records {
		records[i] = new(v2.AppendRecord)
		if raw, err := proto.Marshal(r); err != nil || proto.Unmarshal(raw, records[i]) != nil {
			return false
		}
	}
	return len(g.checks) == len(w.Checks) && sameRecords(t, g.records, records) && (g.unknown != nil) == unknown
}

// sameRecords compares records with what the generated messages and the JSON form of protobuf make
// of them. Of properties that are sent twice the generated messages know the last one alone.
func sameRecords(t *testing.T, got []record, want []*v2.AppendRecord) bool {
	for i, w := range want {
		g := &got[i]
		if g.late {
			break
		}
		if unknown := g.unknown; unknown != nil || g.wrong != nil {
			properties := unknown == nil && strings.Contains(g.wrong.Error(), "].properties: ") || unknown != nil && (strings.Contains(unknown.Error(), "PropertiesEntry") || strings.Contains(unknown.Error(), "Value."))
			if !properties && unknown != nil && onlyKnown(w.ProtoReflect()) == nil {
				t.Errorf("%v of %v", unknown, w)
			}
			continue
		}
		name := formats[w.GetSchema().GetFormat()]
		all := map[string]*structpb.Value{}
		maps.Copy(all, w.Properties)
		all[propertySchemaFormat], all[propertySchemaName] = structpb.NewStringValue(name), structpb.NewStringValue(w.Schema.Name)
		if w.Schema.Id != nil {
			all[propertySchemaID] = structpb.NewStringValue(*w.Schema.Id)
		}
		text, err := protojson.Marshal(&structpb.Struct{Fields: all})
		var compact bytes.Buffer
		if err != nil || json.Compact(&compact, text) != nil || compact.String() != string(g.event.Metadata) {
			t.Errorf("metadata %s, want %s, %v", g.event.Metadata, text, err)
		}
		id, err := event.ParseID(w.GetRecordId())
		if w.RecordId != nil && (err != nil || id != g.event.ID) || g.hasID != (w.RecordId != nil) || g.stream != w.Stream || g.event.Type != w.Schema.Name || !bytes.Equal(g.event.Data, w.Data) ||
			(g.event.Flags&event.FlagJSON != 0) != (name == "Json") || onlyKnown(w.ProtoReflect()) != nil {
			return false
		}
	}
	return len(got) == len(want)
}

// decodeSamples are messages of each kind.
func decodeSamples() []proto.Message {
	structured := &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{MostSignificantBits: -1, LeastSignificantBits: math.MaxInt64}}}
	event := &streams.AppendReq_ProposedMessage{Id: structured, Metadata: fuzzMap, CustomMetadata: []byte("m"), Data: []byte("data")}
	all := []proto.Message{&streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{ProposedMessage: event}}}
	for _, o := range []*streams.AppendReq_Options{
		{StreamIdentifier: fuzzStream, ExpectedStreamRevision: &streams.AppendReq_Options_Revision{Revision: 7}},
		{ExpectedStreamRevision: &streams.AppendReq_Options_NoStream{NoStream: &shared.Empty{}}},
		{StreamIdentifier: &shared.StreamIdentifier{}, ExpectedStreamRevision: &streams.AppendReq_Options_Any{Any: &shared.Empty{}}},
		{ExpectedStreamRevision: &streams.AppendReq_Options_StreamExists{StreamExists: &shared.Empty{}}},
	} {
		all = append(all, &streams.AppendReq{Content: &streams.AppendReq_Options_{Options: o}})
	}
	for _, o := range []*streams.BatchAppendReq_Options{
		nil,
		{StreamIdentifier: fuzzStream, DeadlineOption: &streams.BatchAppendReq_Options_Deadline{Deadline: &durationpb.Duration{Seconds: 3, Nanos: -4}}},
		{DeadlineOption: &streams.BatchAppendReq_Options_Deadline_21_10_0{Deadline_21_10_0: &timestamppb.Timestamp{Seconds: -3, Nanos: 4}},
			ExpectedStreamPosition: &streams.BatchAppendReq_Options_StreamExists{StreamExists: &emptypb.Empty{}}},
	} {
		all = append(all, &streams.BatchAppendReq{CorrelationId: fuzzID, Options: o, IsFinal: true, ProposedMessages: []*streams.BatchAppendReq_ProposedMessage{
			{Id: fuzzID, Metadata: fuzzMap, Data: []byte("1")}, {Id: &shared.UUID{Value: &shared.UUID_String_{String_: "x"}}}, {},
		}})
	}
	record := &v2.AppendRecord{
		RecordId: new("0f9fad5bd9cb469fa16570867728950e"), Stream: "s", Data: []byte("data"), Schema: &v2.SchemaInfo{Format: v2.SchemaFormat_SCHEMA_FORMAT_AVRO, Name: "t", Id: new("i")},
		Properties: map[string]*structpb.Value{
			"a": structpb.NewStringValue("<é\x01>"), "$schema.name": structpb.NewNullValue(), "$t": structpb.NewNumberValue(-1e-9), "b": structpb.NewBoolValue(true),
			"l": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"": structpb.NewNumberValue(1e21)}})}}),
		},
	}
	records := []*v2.AppendRecord{record, {Properties: map[string]*structpb.Value{"": {}}}, {RecordId: new("x"), Schema: &v2.SchemaInfo{}}, {Schema: &v2.SchemaInfo{Format: 1, Name: "t"}}}
	seats := &query.Query{Items: []*query.Query_Item{{Types: []string{"t"}, Tags: []string{"seat:1", "show:2"}}, {Categories: []string{"c"}, Streams: []string{"s"}, Correlation: new("x")}}}
	all = append(all, &query.AppendReq{
		Records: []*query.AppendRecord{{RecordId: new("x"), Stream: "s", Data: []byte("data"), Schema: &query.AppendRecord_Schema{Format: 1, Name: "t"}}},
		Checks:  []*query.AppendReq_StreamCheck{{Stream: "s", ExpectedState: -4}, {}},
		Conditions: []*query.AppendReq_Condition{
			{Query: seats, After: new(int64(7))}, {Query: &query.Query{All: true}}, {After: new(int64(-1))}, {Query: &query.Query{Items: []*query.Query_Item{{Correlation: new("")}}}},
		},
	})
	all = append(all, &v2.AppendRequest{Stream: "s", Records: records, ExpectedRevision: new(int64(-4))}, &v2.AppendRequest{},
		&v2.AppendRecordsRequest{Records: records[:1], Checks: []*v2.ConsistencyCheck{{}, {Type: &v2.ConsistencyCheck_StreamState{StreamState: &v2.ConsistencyCheck_StreamStateCheck{Stream: "c", ExpectedState: 7}}}}})
	ids := []*shared.UUID{fuzzID, structured, {}}
	return append(all,
		&persistent.ReadReq{Content: &persistent.ReadReq_Ack_{Ack: &persistent.ReadReq_Ack{Id: []byte("\xff"), Ids: ids[:2]}}},
		&persistent.ReadReq{Content: &persistent.ReadReq_Nack_{Nack: &persistent.ReadReq_Nack{Ids: ids, Action: persistent.ReadReq_Nack_Park, Reason: "why"}}},
		&persistent.ReadReq{Content: &persistent.ReadReq_Options_{Options: &persistent.ReadReq_Options{GroupName: "g"}}},
		&persistent.ReadReq{})
}

// FuzzDecode: what is decoded by hand is what the generated messages decode, or refused as they
// refuse it. Two messages one after the other are one, where the second is merged into the first.
func FuzzDecode(f *testing.F) {
	var all [][]byte
	for _, m := range decodeSamples() {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, raw)
	}
	for _, a := range all {
		f.Add(a)
		f.Add(a[:len(a)/2])
		f.Add(append([]byte{0x7a, 1, 0xff}, a...)) // an unknown field
		f.Add(bytes.ReplaceAll(a, []byte("type"), []byte("typ\xff")))
		f.Add(bytes.ReplaceAll(a, []byte("why"), []byte("wh\xff")))
		for _, b := range all {
			f.Add(append(bytes.Clone(a), b...))
		}
	}
	for _, b := range [][]byte{{0x0b, 0x0c}, {0x0b}, {0x0c}, {0x07}, {0}, {0x80}, {0x0a, 0x81}, {0x10, 1}, {0x20, 2}, {0x20, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02},
		protowire.AppendVarint(nil, 1<<32|2), append(protowire.AppendVarint(nil, 1<<32), 1)} {
		f.Add(b)
		for number := protowire.Number(1); number < 5; number++ {
			f.Add(protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, m := range []byHand{&appendRequest{isEvent: true}, &batchRequest{isFinal: true, correlation: []byte("x")}, &groupAnswer{reason: "x"}, &sessionRequest{stream: "x"}, &recordsRequest{checks: []streamCheck{{}}}, &recordsRequest{conditional: true, checks: []streamCheck{{}}}} {
			before := bytes.Clone(raw)
			if !same(t, raw, m) {
				t.Errorf("%x is %+v", raw, m)
			}
			if !bytes.Equal(raw, before) {
				t.Errorf("%x was changed", before)
			}
		}
	})
}

// FuzzDecodeParts has the parts of messages, which FuzzDecode comes to seldom, where they belong.
func FuzzDecodeParts(f *testing.F) {
	for path := range uint8(64) {
		f.Add(path, []byte{0x0a, 0}, []byte{0x12, 1, 'x'})
		f.Add(path, []byte("\n\x04type\x12\x01t"), []byte("\n\x0ccontent-type"))
		f.Add(path, []byte{0x12, 1, 0xff}, []byte{0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	}
	f.Fuzz(func(t *testing.T, path uint8, first, second []byte) {
		raw := []byte(nil)
		for _, part := range [][]byte{first, second} {
			for at := path; at > 0; at /= 8 {
				part = protowire.AppendBytes(protowire.AppendTag(nil, protowire.Number(at%8), protowire.BytesType), part)
			}
			raw = append(raw, part...)
		}
		for _, m := range []byHand{new(appendRequest), new(batchRequest), new(groupAnswer), new(sessionRequest), new(recordsRequest), &recordsRequest{conditional: true}} {
			if !same(t, raw, m) {
				t.Errorf("%x is %+v", raw, m)
			}
		}
	})
}

// TestOneRecordIsWrong has a message be refused for its first wrong record: what is wrong with a
// million more takes no memory.
func TestOneRecordIsWrong(t *testing.T) {
	known := []byte{2<<3 | 2, 0, 1<<3 | 2, 0}
	for name, bad := range map[string][]byte{"wrong": known[2:], "unknown": {15 << 3, 1}} {
		var all []record
		for _, b := range [][]byte{bad, bad, known, bad} {
			if !decodeRecord(&all, b) {
				t.Fatalf("%s: not decoded", name)
			}
		}
		for i, r := range all {
			if i == 0 != (r.wrong != nil || r.unknown != nil) {
				t.Errorf("%s: record %d: %v, %v", name, i, r.wrong, r.unknown)
			}
		}
	}
}

// A message that is wrong is refused with the words of the generated ones.
func TestMalformedByHand(t *testing.T) {
	c := new(call)
	for _, raw := range []string{"\x12\x05", "\x12\x08\n\x06\x12\x04abc\xff"} {
		b := []byte(raw)
		err := c.decode(&whole{data: &b, size: len(raw)}, new(appendRequest))
		if want := proto.Unmarshal([]byte(raw), new(streams.AppendReq)); err == nil || want == nil || err.Error() != want.Error() || errors.Is(err, errMalformed) {
			t.Errorf("%q: %v, want %v", raw, err, want)
		}
	}
}

// What was decoded does not lie in the message, whose memory others get.
func TestDecodedIsOwn(t *testing.T) {
	for _, m := range decodeSamples() {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, decoded := range []byHand{new(appendRequest), new(batchRequest), new(groupAnswer), new(sessionRequest), new(recordsRequest), &recordsRequest{conditional: true}} {
			again := bytes.Clone(raw)
			if !decoded.decode(again) {
				continue
			}
			fresh := reflect.New(reflect.TypeOf(decoded).Elem()).Interface().(byHand)
			if r, ok := decoded.(*recordsRequest); ok {
				fresh = &recordsRequest{conditional: r.conditional}
			}
			fresh.decode(raw)
			clear(again)
			if !reflect.DeepEqual(decoded, fresh) {
				t.Errorf("%+v, want %+v", decoded, fresh)
			}
		}
	}
}

// Append and BatchAppend, reads and persistent subscriptions share code for what they have in
// common: their numbers are the same.
func TestNumbersAreShared(t *testing.T) {
	for _, test := range []struct{ one, other proto.Message }{
		{new(streams.AppendReq_Options), new(streams.BatchAppendReq_Options)},
		{new(streams.AppendReq_ProposedMessage), new(streams.BatchAppendReq_ProposedMessage)},
		{new(streams.AppendResp_Success), new(streams.BatchAppendResp_Success)},
		{new(streams.AppendResp_Position), new(shared.AllStreamPosition)},
		{new(timestamppb.Timestamp), new(durationpb.Duration)},
		{new(streams.ReadResp_ReadEvent), new(persistent.ReadResp_ReadEvent)},
		{new(streams.ReadResp_ReadEvent_RecordedEvent), new(persistent.ReadResp_ReadEvent_RecordedEvent)},
		{new(persistent.ReadReq_Ack), new(persistent.ReadReq_Nack)},
	} {
		one, other := test.one.ProtoReflect().Descriptor().Fields(), test.other.ProtoReflect().Descriptor().Fields()
		for i := range one.Len() {
			a := one.Get(i)
			b := other.ByNumber(a.Number())
			if b == nil || a.Kind() != b.Kind() || a.Cardinality() != b.Cardinality() || a.Message() != nil && a.Message().Name() != b.Message().Name() && a.Message().Name() != "Position" {
				t.Errorf("%T and %T differ in %v", test.one, test.other, a.FullName())
			}
		}
	}
}

// BenchmarkDecode compares both ways to decode an event, and a write of a batch.
func BenchmarkDecode(b *testing.B) {
	for _, test := range []struct {
		name string
		raw  []byte
		into byHand
	}{
		{"event", rawOf(b, benchAppend()...)[1], new(appendRequest)},
		{"options", rawOf(b, benchAppend()...)[0], new(appendRequest)},
		{"batch", rawOf(b, benchBatch())[0], new(batchRequest)},
		{"records", rawOf(b, benchRecords(2))[0], new(recordsRequest)},
	} {
		b.Run(test.name+"/by hand", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !test.into.decode(test.raw) {
					b.Fatal("it is malformed")
				}
			}
		})
		b.Run(test.name+"/generated", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := proto.Unmarshal(test.raw, test.into.generated()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
