package label_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/check"
)

// numbered are n texts as members of a JSON array.
func numbered(n int) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf(`"t%d"`, i)
	}
	return "[" + strings.Join(texts, ",") + "]"
}

func TestRead(t *testing.T) {
	long := strings.Repeat("x", event.MaxLabelSize)
	for _, c := range []struct {
		name, metadata string
		tags           []string
		correlation    string
		err            string
	}{
		{name: "nothing"},
		{name: "other members", metadata: `{"a":"$tag","b":{"$tags":["x"]}}`},
		{name: "array", metadata: `{"$tags":["a:1","b c",""]}`, err: "$tags: a tag is empty"},
		{name: "tags", metadata: ` { "$tags" : [ "a:1" , "b c" , "é" ] } `, tags: []string{"a:1", "b c", "é"}},
		{name: "a control character in one text", metadata: "{\"$tags\":\" a , b\\tc,\u00a0d\"}", err: `$tags: the tag "b\tc" has a control character`},
		{name: "one text", metadata: `{"$tags":" a ,\t b:1,a"}`, tags: []string{"a", "b:1"}},
		{name: "a hole in the text", metadata: `{"$tags":"a,,b"}`, err: "$tags: a tag is empty"},
		{name: "no tags in a text", metadata: `{"$tags":" "}`},
		{name: "no tags in an array", metadata: `{"$tags":[]}`},
		{name: "null", metadata: `{"$tags":null,"$correlationId":null}`},
		{name: "twice is once", metadata: `{"$tags":["a","b","a","\u0061"]}`, tags: []string{"a", "b"}},
		{name: "case counts", metadata: `{"$tags":["a","A"]}`, tags: []string{"a", "A"}},
		{name: "escaped name", metadata: `{"\u0024t\u0061gs":["a"],"\u0024correlationId":"c"}`, tags: []string{"a"}, correlation: "c"},
		{name: "wholly escaped name", metadata: `{"\u0024\u0074\u0061\u0067\u0073":["a"]}`, tags: []string{"a"}},
		{name: "the last member counts", metadata: `{"$tags":["a"],"$tags":["b"],"$correlationId":"c","$correlationId":"d"}`, tags: []string{"b"}, correlation: "d"},
		{name: "case of the name counts", metadata: `{"$Tags":1,"$correlationid":"c"}`},
		{name: "a number", metadata: `{"$tags":7}`, err: "$tags: neither an array of texts nor a text"},
		{name: "an object", metadata: `{"$tags":{}}`, err: "$tags: neither an array of texts nor a text"},
		{name: "no text in the array", metadata: `{"$tags":["a",7]}`, err: "$tags: element 1 is not a text"},
		{name: "a comma", metadata: `{"$tags":["a,b"]}`, err: `$tags: the tag "a,b" has a comma`},
		{name: "white space at the end", metadata: `{"$tags":["a "]}`, err: `$tags: the tag "a " begins or ends with white space`},
		{name: "a control character", metadata: `{"$tags":["a\u0085b"]}`, err: `$tags: the tag "a\u0085b" has a control character`},
		{name: "not UTF-8", metadata: "{\"$tags\":[\"a\xff\"]}", err: "$tags: not UTF-8"},
		{name: "longest", metadata: `{"$tags":["` + long + `"],"$correlationId":"` + long + `"}`, tags: []string{long}, correlation: long},
		{name: "too long", metadata: `{"$tags":["` + long + `x"]}`, err: "$tags: a tag has 257 bytes, at most 256 are possible"},
		{name: "most", metadata: `{"$tags":` + numbered(64) + `}`, tags: strings.Split(strings.Trim(strings.ReplaceAll(numbered(64), `"`, ""), "[]"), ",")},
		{name: "too many", metadata: `{"$tags":` + numbered(65) + `}`, err: "$tags: more than 64 tags"},
		{name: "too many texts", metadata: `{"$tags":"` + strings.Repeat("a,", 1024) + `a"}`, err: "$tags: more than 1024 texts"},
		{name: "not an object", metadata: `["$tags"]`},
		{name: "broken", metadata: `{"$tags":["a"]`},
		{name: "something after it", metadata: `{"$tags":["a"]}x`},
		{name: "correlation and malformed tags", metadata: `{"$tags":1,"$correlationId":"c"}`, correlation: "c", err: "$tags: neither an array of texts nor a text"},
		{name: "a number correlates", metadata: `{"$correlationId":12.50}`, correlation: "12.50"},
		{name: "a long correlation", metadata: `{"$correlationId":"` + long + `x"}`},
		{name: "an array does not correlate", metadata: `{"$correlationId":["c"]}`},
		{name: "an empty correlation", metadata: `{"$correlationId":""}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r label.Reader
			f, err := r.Read("s", "T", []byte(c.metadata))
			if c.err == "" {
				check.Must(t, err)
				check.Slice(t, f.Tags, c.tags)
			} else {
				check.Says(t, err, c.err)
				check.Equal(t, len(f.Tags), 0)
			}
			check.Equal(t, f.Correlation, c.correlation)
		})
	}
}

func TestAppend(t *testing.T) {
	const metadata = `{"$tags":["a"],"$correlationId":"c"}`
	for _, c := range []struct{ name, stream, eventType, want string }{
		{"plain", "order-1-2", "Placed", "type Placed, category order, correlation c, tag a"},
		{"no dash", "order", "Placed", "type Placed, category order, correlation c, tag a"},
		{"no category", "-1", "Placed", "type Placed, correlation c, tag a"},
		{"system stream", "$order-1", "Placed", "type Placed"},
		{"system type", "order-1", "$Placed", "type $Placed"},
		{"link", "order-1", event.TypeLink, "type $>"},
		{"tombstone", "order-1", event.TypeStreamDeleted, "type $streamDeleted"},
		{"stream metadata", "$$order-1", event.TypeMetadata, "type $metadata"},
		{"not shown", "$epoch-information", "$epoch", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r label.Reader
			f, err := r.Read(c.stream, c.eventType, []byte(metadata))
			check.Must(t, err)
			var got []string
			for _, l := range label.Append(nil, &f) {
				got = append(got, l.Kind.String()+" "+l.Key)
			}
			check.Equal(t, strings.Join(got, ", "), c.want)
		})
	}
}

// TestHash: the hashes are stored.
func TestHash(t *testing.T) {
	for want, l := range map[uint64]label.Label{
		0x3d43e65ab835429e: {Kind: label.Category, Key: "order"},
		0x506f112dbf08410f: {Kind: label.Type, Key: "order"},
		0x64701b7f65053075: {Kind: label.Correlation, Key: "7"},
		0x9c12e0c4632d2ac4: {Kind: label.Tag, Key: "show:7"},
	} {
		check.Equal(t, l.Hash(), want, l)
	}
}

func TestCheck(t *testing.T) {
	const reserved = "Index streams cannot be written to."
	bad := []event.Proposed{{Type: "T"}, {Type: "T", Metadata: []byte(`{"$tags":7}`)}}
	system := []event.Proposed{{Type: "$>", Metadata: bad[1].Metadata}}
	const malformed = "$tags: neither an array of texts nor a text"
	for _, c := range []struct {
		name string
		w    event.Write
		want string
	}{
		{"plain", event.Write{Stream: "s", Events: bad[:1]}, ""},
		{"malformed", event.Write{Stream: "s", Events: bad}, malformed},
		{"link", event.Write{Stream: "s", Events: system}, ""},
		{"system stream", event.Write{Stream: "$s", Events: bad}, ""},
		{"stream metadata", event.Write{Stream: "$$s", Events: bad}, ""},
		{"many", event.Write{Kind: event.AppendMany, Events: bad, Many: &event.Many{Streams: []string{"$s", "s"}, Of: []int32{0, 1}}}, malformed},
		{"many, to a system stream", event.Write{Kind: event.AppendMany, Events: bad, Many: &event.Many{Streams: []string{"s", "$s"}, Of: []int32{0, 1}}}, ""},
		{"many, out of range", event.Write{Kind: event.AppendMany, Events: bad, Many: &event.Many{Streams: []string{"$s"}, Of: []int32{7}}}, malformed},
		{"index", event.Write{Stream: "$idx-ce-a"}, reserved},
		{"deletion", event.Write{Kind: event.HardDelete, Stream: "$idx-x"}, reserved},
		{"the name that begins them", event.Write{Stream: "$idx"}, reserved},
		{"without a dash", event.Write{Stream: "$idxs"}, reserved},
		{"metadata", event.Write{Stream: "$$$idx-all"}, reserved},
		{"metadata of metadata", event.Write{Stream: "$$$$$idx"}, reserved},
		{"metadata of all indexes", event.Write{Stream: "$$$idx"}, ""},
		{"many to an index", event.Write{Kind: event.AppendMany, Many: &event.Many{Streams: []string{"s", "$idx-all"}}}, reserved},
		{"many with a check of one", event.Write{Kind: event.AppendMany, Many: &event.Many{Streams: []string{"s"}, Checks: []event.Check{{Stream: "$idx"}}}}, ""},
		{"like it", event.Write{Stream: "$id"}, ""},
		{"of users", event.Write{Stream: "idx-all"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := label.Check(&c.w); c.want == "" {
				check.Must(t, err)
			} else {
				check.Says(t, err, c.want)
			}
		})
	}
}

func TestWithTags(t *testing.T) {
	for _, c := range []struct{ name, metadata, tags, want, err string }{
		{name: "alone", tags: `["a", "b"]`, want: `{"$tags":["a", "b"]}`},
		{name: "empty object", metadata: ` { } `, tags: `["a"]`, want: ` {"$tags":["a"] } `},
		{name: "beside others", metadata: `{"x":1}`, tags: `["a"]`, want: `{"$tags":["a"],"x":1}`},
		{name: "null", metadata: `x`, tags: `null`, want: `x`},
		{name: "malformed", tags: `["a,b"]`, err: `$tags: the tag "a,b" has a comma`},
		{name: "text", tags: `"a"`, err: "tags: not an array of texts"},
		{name: "not an object", metadata: `[1]`, tags: `["a"]`, err: "tags: the metadata is not a JSON object"},
		{name: "given twice", metadata: `{"\u0024tags":null}`, tags: `["a"]`, err: "tags: the metadata has $tags too"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := label.WithTags([]byte(c.metadata), []byte(c.tags))
			if c.err != "" {
				check.Says(t, err, c.err)
				return
			}
			check.Must(t, err)
			check.Equal(t, string(got), c.want)
		})
	}
}

// model reads metadata by encoding/json.
func model(metadata []byte) (tags []string, correlation string, ok bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(metadata, &m) != nil {
		return nil, "", true
	}
	var text string
	switch raw := m[event.CorrelationMember]; {
	case len(raw) == 0:
	case json.Unmarshal(raw, &text) == nil && raw[0] == '"':
		correlation = text
	case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
		correlation = string(raw)
	}
	if len(correlation) > 256 {
		correlation = ""
	}
	raw := m[event.TagsMember]
	var texts []*string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, correlation, true
	case !utf8.Valid(raw):
		return nil, correlation, false
	case raw[0] == '"':
		check := json.Unmarshal(raw, &text)
		if check != nil || strings.TrimSpace(text) == "" {
			return nil, correlation, check == nil
		}
		for _, part := range strings.Split(text, ",") {
			part = strings.TrimSpace(part)
			texts = append(texts, &part)
		}
	case json.Unmarshal(raw, &texts) != nil:
		return nil, correlation, false
	}
	for _, tag := range texts {
		if tag == nil || *tag == "" || len(*tag) > 256 || strings.TrimSpace(*tag) != *tag || strings.Contains(*tag, ",") || strings.ContainsFunc(*tag, unicode.IsControl) {
			return nil, correlation, false
		}
		if !slices.Contains(tags, *tag) {
			tags = append(tags, *tag)
		}
	}
	if len(tags) > 64 || len(texts) > 1024 {
		return nil, correlation, false
	}
	return tags, correlation, true
}

// FuzzRead compares with encoding/json.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"$tags":["a","b"],"$correlationId":"c"}`, `{"\u0024tags":"a, b","$correlationId":1e5}`,
		`{"$tags":["a"],"$tags":null}`, `{"$tags":["a",null]}`, `{"x":{"$tags":1}}`, "{\"$tags\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, metadata []byte) {
		tags, correlation, ok := model(metadata)
		var r label.Reader
		got, err := r.Read("s", "T", metadata)
		if !slices.Equal(got.Tags, tags) || got.Correlation != correlation || (err == nil) != ok {
			t.Errorf("%q: %q, %q, %v; want %q, %q, %t", metadata, got.Tags, got.Correlation, err, tags, correlation, ok)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	for _, c := range []struct{ name, metadata string }{
		{"none", ``},
		{"plain", `{"user":"ann","host":"web-7.example.com","trace":"0f9fad5b-d9cb-469f-a165-70867728950e","n":17}`},
		{"correlation", `{"$correlationId":"0f9fad5b-d9cb-469f-a165-70867728950e","$causationId":"0f9fad5b-d9cb-469f-a165-70867728950e"}`},
		{"two tags", `{"user":"ann","$tags":["show:7","seat:12"]}`},
		{"text of tags", `{"user":"ann","$tags":"show:7, seat:12"}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var r label.Reader
			var labels []label.Label
			metadata := []byte(c.metadata)
			for b.Loop() {
				f, err := r.Read("order-17", "OrderPlaced", metadata)
				if err != nil {
					b.Fatal(err)
				}
				labels = label.Append(labels[:0], &f)
				for _, l := range labels {
					_ = l.Hash()
				}
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	b.ReportAllocs()
	w := &event.Write{Stream: "order-17", Events: []event.Proposed{{Type: "OrderPlaced",
		Metadata: []byte(`{"user":"ann","host":"web-7.example.com","trace":"0f9fad5b-d9cb-469f-a165-70867728950e","n":17}`)}}}
	for b.Loop() {
		check.Must(b, label.Check(w))
	}
}
