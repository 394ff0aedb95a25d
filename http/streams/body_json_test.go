package streams

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/internal/jsontext"
)

// These tests look at the inside of the package: what a body means is easier to
// see in the events than in the answers of a whole server.

const (
	testID   = "0f9fad5b-d9cb-469f-a165-70867728950e"
	otherID  = "11111111-2222-3333-4444-555555555555"
	bareID   = "0F9FAD5BD9CB469FA16570867728950E"
	bodyText = "Write request body invalid."
	zeroGUID = "00000000-0000-0000-0000-000000000000"
)

// show writes events so that whole batches can be compared: type, flag, data and metadata of each.
func show(events []event.Proposed) string {
	var parts []string
	for _, e := range events {
		s := e.Type
		if e.ID.String() != testID {
			s = e.ID.String() + " " + s
		}
		if e.Flags&event.FlagJSON != 0 {
			s += " json"
		}
		s += " " + string(e.Data)
		if len(e.Metadata) > 0 {
			s += " meta " + string(e.Metadata)
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "|")
}

type batchCase struct{ name, body, want string }

func testBatches(t *testing.T, decode func([]byte) ([]event.Proposed, error), cases []batchCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			body := []byte(strings.NewReplacer("$ID", testID, "$OTHER", otherID, "$ZERO", zeroGUID).Replace(c.body))
			before := bytes.Clone(body)
			events, err := decode(body)
			if !bytes.Equal(body, before) {
				t.Error("the body was changed")
			}
			if want, refused := strings.CutPrefix(c.want, "error: "); refused {
				var be *problem.Problem
				if !errors.As(err, &be) || be.Text != want || events != nil {
					t.Errorf("got %q, %v; want error %q", show(events), err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := show(events); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestDecodeJSONBatch(t *testing.T) {
	const (
		invalid   = "error: " + bodyText
		emptyID   = "error: Empty eventId provided."
		emptyType = "error: Empty eventType provided."
	)
	one := func(members string) string { return `[{"eventId":"$ID","eventType":"T"` + members + `}]` }
	testBatches(t, decodeJSONBatch, []batchCase{
		{"object", one(`,"data":{"a": 1}`), `T json {"a": 1}`},
		{"array", one(`,"data":[1, 2]`), `T json [1, 2]`},
		{"text", one(`,"data":"0@orders-7"`), `T 0@orders-7`},
		{"text with escapes", one(`,"data":"a\n\"b\" \u00e9"`), "T a\n\"b\" é"},
		{"text that is an object", one(`,"data":" {\"a\":\"\\n\"} "`), `T json {"a":"\n"}`},
		{"text that is an array", one(`,"data":"[1]"`), `T json [1]`},
		{"text that begins like an object", one(`,"data":"{a}"`), `T {a}`},
		{"text that goes on behind an object", one(`,"data":"{} x"`), `T {} x`},
		{"text that is a number", one(`,"data":"12"`), `T 12`},
		{"empty text", one(`,"data":""`), `T `},
		{"null", one(`,"data":null,"metadata":null`), `T `},
		{"missing", one(``), `T `},
		{"number", one(`,"data":-1.50e3`), `T json -1.50e3`},
		{"boolean", one(`,"data":true`), `T json true`},
		{"metadata", one(`,"data":{},"metadata":{"m":[]}`), `T json {} meta {"m":[]}`},
		{"metadata alone is json", one(`,"data":"x","metadata":{"m":1}`), `T json x meta {"m":1}`},
		{"metadata is text", one(`,"metadata":"m"`), `T  meta m`},
		{"tags", one(`,"tags":["a", "b"]`), `T json  meta {"$tags":["a", "b"]}`},
		{"tags and metadata", one(`,"TAGS":["a"],"data":"x","metadata":{"m":1}`), `T json x meta {"$tags":["a"],"m":1}`},
		{"tags and metadata as text", one(`,"tags":["a"],"metadata":" {\"m\":1} "`), `T json  meta {"$tags":["a"],"m":1}`},
		{"tags that are null", one(`,"tags":null,"metadata":"m"`), `T  meta m`},
		{"names in another case", `[{"EventId":"$ID","EVENTTYPE":"T","Data":1,"metaData":2}]`, `T json 1 meta 2`},
		{"names with escapes", `[{"\u0065ventId":"$ID","event\u0054ype":"T","d\u0061ta":1}]`, `T json 1`},
		{"unknown members", one(`,"x":{"eventId":5},"eventNumber":7,"datas":1`), `T `},
		{"last duplicate wins", `[{"eventId":"$OTHER","eventId":"$ID","eventType":"A","EventType":"T","data":{"a":1},"Data":"x"}]`, `T x`},
		{"bare id", `[{"eventId":"` + bareID + `","eventType":"T"}]`, `T `},
		{"id in braces", `[{"eventId":"{$ID}","eventType":"T"}]`, `T `},
		{"several events", `[{"eventId":"$ID","eventType":"A","data":1} , {"eventType":"B","eventId":"$OTHER"},{"eventId":"$ID","eventType":"A"}]`,
			`A json 1|` + otherID + ` B |A `},
		{"single object", ` {"eventId":"$ID","eventType":"T","data":{}} `, `T json {}`},
		{"byte-order mark", "\ufeff" + one(``), `T `},
		{"white space everywhere", "\n[\t{ \"eventId\" : \"$ID\" ,\r\n\"eventType\" : \"T\" , \"data\" : { \"a\" : 1 } } ] ", `T json { "a" : 1 }`},

		{"no id", `[{"eventType":"T"}]`, emptyID},
		{"null id", `[{"eventId":null,"eventType":"T"}]`, emptyID},
		{"zero id", `[{"eventId":"$ZERO","eventType":"T"}]`, emptyID},
		{"id before type", `[{"data":1}]`, emptyID},
		{"empty object", `{}`, emptyID},
		{"null id behind an id", `[{"eventId":"$ID","eventId":null,"eventType":"T"}]`, emptyID},
		{"no type", `[{"eventId":"$ID"}]`, emptyType},
		{"empty type", `[{"eventId":"$ID","eventType":""}]`, emptyType},
		{"null type", `[{"eventId":"$ID","eventType":null}]`, emptyType},
		{"first event in order", `[{"eventId":"$ID"},{"eventType":"T"}]`, emptyType},
		{"type too long", `[{"eventId":"$ID","eventType":"` + strings.Repeat("t", event.MaxNameBytes+1) + `"}]`,
			"error: Invalid eventType provided. It is longer than 61440 bytes."},

		{"malformed tags", one(`,"tags":["a,b"]`), `error: $tags: the tag "a,b" has a comma`},
		{"tags that are a text", one(`,"tags":"a"`), "error: tags: not an array of texts"},
		{"tags and metadata that are not an object", one(`,"tags":["a"],"metadata":[1]`), "error: tags: the metadata is not a JSON object"},
		{"tags twice", one(`,"tags":["a"],"metadata":{"$tags":"b"}`), "error: tags: the metadata has $tags too"},
		{"nothing", ``, invalid},
		{"white space", " \n", invalid},
		{"empty array", `[]`, invalid},
		{"text as body", `"x"`, invalid},
		{"number as body", `1`, invalid},
		{"null as body", `null`, invalid},
		{"array of scalars", `[1]`, invalid},
		{"array of arrays", `[[]]`, invalid},
		{"null among events", `[{"eventId":"$ID","eventType":"T"},null]`, invalid},
		{"trailing garbage", one(``) + `x`, invalid},
		{"two arrays", one(``) + one(``), invalid},
		{"two objects", `{"eventId":"$ID","eventType":"T"}{}`, invalid},
		{"not closed", `[{"eventId":"$ID","eventType":"T"}`, invalid},
		{"comma at the end", `[{"eventId":"$ID","eventType":"T"},]`, invalid},
		{"broken data", one(`,"data":{"a":}`), invalid},
		{"broken unknown member", one(`,"x":tru`), invalid},
		{"control character in text", one(",\"data\":\"a\nb\""), invalid},
		{"bad id", `[{"eventId":"12","eventType":"T"}]`, invalid},
		{"empty text as id", `[{"eventId":"","eventType":"T"}]`, invalid},
		{"number as id", `[{"eventId":1,"eventType":"T"}]`, invalid},
		{"object as type", `[{"eventId":"$ID","eventType":{}}]`, invalid},
		{"broken body before missing id", `[{"eventType":"T"},{"eventId":"$ID","eventType":"T"}`, invalid},
		{"bad id before missing id", `[{"eventType":"T"},{"eventId":"x","eventType":"T"}]`, invalid},
		{"xml", `<a/>`, invalid},
	})
}

func TestDecodeJSONBatchSize(t *testing.T) {
	body := func(data, metadata int) []byte {
		return fmt.Appendf(nil, `[{"eventId":%q,"eventType":"T","data":"%s","metadata":"%s"}]`, testID, strings.Repeat("d", data), strings.Repeat("m", metadata))
	}
	if _, err := decodeJSONBatch(body(event.MaxEventBytes-10, 10)); err != nil {
		t.Errorf("largest event: %v", err)
	}
	if _, err := decodeJSONBatch(body(event.MaxEventBytes-10, 11)); !errors.Is(err, event.ErrTooLarge) {
		t.Errorf("event above the limit: %v", err)
	}
	if _, err := decodeJSONBatch(append(body(event.MaxEventBytes, 1), 'x')); errors.Is(err, event.ErrTooLarge) {
		t.Errorf("broken body: %v", err)
	}
}

func TestValidJSON(t *testing.T) {
	for text, want := range map[string]bool{"": false, " ": false, `{}`: true, ` 1 `: true, `"x"`: true, `{`: false, `0@a`: false, "\ufeff{}": false, "\"\xe9\"": false, "\"é\"": true} {
		if got := jsontext.ValidUTF8([]byte(text)); got != want {
			t.Errorf("ValidUTF8(%q) = %v", text, got)
		}
	}
}

func TestTranslateMetadataItem(t *testing.T) {
	for _, c := range []struct {
		name, body, want string // want is empty for input that is not an item
		id               string
	}{
		{"every name", `{"eventId":"$ID","eventType":"x","data":{"maxAge":60,"maxCount":10,"truncateBefore":3,"cacheControl":"12",
			"acl":{"r":"$admins","w":["a", "b"],"d":null,"mr":[],"mw":"$all"}}}`,
			`{"$maxAge":60,"$maxCount":10,"$tb":3,"$cacheControl":12,"$acl":{"$r":"$admins","$w":["a", "b"],"$d":null,"$mr":[],"$mw":"$all"}}`, testID},
		{"order and unknown members stay", `{"data":{"b":{"maxAge":1},"$maxAge":5,"a\n":[1],"maxCount":2,"MaxAge":3}}`,
			`{"b":{"maxAge":1},"$maxAge":5,"a\n":[1],"$maxCount":2,"MaxAge":3}`, ""},
		{"rights that have their sign", `{"data":{"acl":{"$r":"a","r":"c","w":"b","x":1}}}`, `{"$acl":{"$r":"a","r":"c","$w":"b","x":1}}`, ""},
		{"keys that have their sign", `{"data":{"maxAge":1,"$maxAge":5,"acl":{"r":"a"},"$acl":{"r":"c"}}}`, `{"maxAge":1,"$maxAge":5,"acl":{"r":"a"},"$acl":{"r":"c"}}`, ""},
		{"values of a wrong type", `{"data":{"maxAge":"60","maxCount":1.5,"truncateBefore":[],"acl":{"r":1},"own":1}}`, `{"maxAge":"60","maxCount":1.5,"truncateBefore":[],"acl":{"r":1},"own":1}`, ""},
		{"a number too large", `{"data":{"truncateBefore":99999999999999999999}}`, `{"$tb":99999999999999999999}`, ""},
		{"list that is no object", `{"data":{"acl":null}}`, `{"$acl":null}`, ""},
		{"cacheControl as number", `{"data":{"cacheControl":12}}`, `{"$cacheControl":12}`, ""},
		{"cacheControl with leading zeros", `{"data":{"cacheControl":"0012"}}`, `{"$cacheControl":12}`, ""},
		{"cacheControl of zeros", `{"data":{"cacheControl":"00"}}`, `{"$cacheControl":0}`, ""},
		{"cacheControl without digits", `{"data":{"cacheControl":"12s"}}`, `{"cacheControl":"12s"}`, ""},
		{"cacheControl empty", `{"data":{"cacheControl":""}}`, `{"cacheControl":""}`, ""},
		{"names in another case", `{"EVENTID":"$ID","Data":{},"MetaData":1,"EventType":null}`, `{}`, testID},
		{"id that is no GUID", `{"eventId":"x","data":{}}`, `{}`, ""},
		{"id of zeros", `{"eventId":"$ZERO","data":{}}`, `{}`, ""},
		{"id that is no text", `{"eventId":7,"data":{}}`, `{}`, ""},
		{"white space", " { \"data\" : { \"maxAge\" : 1 , \"x\" : { } } } ", `{"$maxAge":1,"x":{ }}`, ""},
		{"another member", `{"data":{},"maxAge":1}`, "", ""},
		{"no data", `{"eventId":"$ID"}`, "", ""},
		{"data is text", `{"data":"{}"}`, "", ""},
		{"plain metadata", `{"$maxAge":1}`, "", ""},
		{"empty object", `{}`, "", ""},
		{"array", `[{"data":{}}]`, "", ""},
		{"broken", `{"data":{}`, "", ""},
		{"garbage behind", `{"data":{}}}`, "", ""},
		{"nothing", ``, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := strings.NewReplacer("$ID", testID, "$ZERO", zeroGUID).Replace(c.body)
			data, id, hasID, isItem := translateMetadataItem([]byte(body))
			if string(data) != c.want || isItem != (c.want != "") {
				t.Errorf("got  %s, %v\nwant %s", data, isItem, c.want)
			}
			if hasID != (c.id != "") || hasID && id.String() != c.id {
				t.Errorf("got id %v, %v", id, hasID)
			}
		})
	}
}

// batchOf returns a batch of n events with 256 bytes of data each.
func batchOf(n int) []byte {
	data := `{"orderId":"0f9fad5b-d9cb-469f-a165-70867728950e","customer":{"id":18273,"name":"Ada Lovelace","vip":true},` +
		`"lines":[{"sku":"A-1001","quantity":3,"price":12.50},{"sku":"B-2002","quantity":1,"price":199.99}],"note":"leave at the door, please","total":237.49}`
	b := []byte{'['}
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"eventId":"0f9fad5b-d9cb-469f-a165-%012d","eventType":"OrderPlaced%d","data":%s,"metadata":{"correlation":%d}}`, i, i%3, data, i)
	}
	return append(b, ']')
}

func TestDecodeJSONBatchAllocates(t *testing.T) {
	body := batchOf(100)
	events, err := decodeJSONBatch(body)
	if err != nil || len(events) != 100 {
		t.Fatal(len(events), err)
	}
	// The events, three types and the growing list of types.
	if n := testing.AllocsPerRun(10, func() {
		if _, err := decodeJSONBatch(body); err != nil {
			t.Fatal(err)
		}
	}); n > 8 {
		t.Errorf("%v allocations for 100 events", n)
	}
}

func BenchmarkDecodeJSONBatch(b *testing.B) {
	body := batchOf(100)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeJSONBatch(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeXMLBatch(b *testing.B) {
	body := []byte("<Events>")
	for i := range 100 {
		body = fmt.Appendf(body, "<Event><EventId>0f9fad5b-d9cb-469f-a165-%012d</EventId><EventType>OrderPlaced</EventType><Data><a>1</a><b>text</b></Data></Event>", i)
	}
	body = append(body, "</Events>"...)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeXMLBatch(body); err != nil {
			b.Fatal(err)
		}
	}
}
