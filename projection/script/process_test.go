package script_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
)

// TestStates hands {"n":1}, {"n":2} ... of types T, U, T to a script and compares the state after
// the last.
func TestStates(t *testing.T) {
	cases := []struct{ name, source, want string }{
		{"changed in place", `fromAll().when({T(s, e) { s.n = (s.n || 0) + e.body.n }})`, `{"n":4}`},
		{"returned", `fromAll().when({$init: () => 0, $any: (s, e) => s + e.data.n})`, `6`},
		{"named before any", `fromAll().when({$any: () => 'any'}); on_event('U', () => 'named')`, `"named"`},
		{"init", `fromAll().when({$init() { return {list: []} }, $any(s, e) { s.list.push(e.eventType) }})`, `{"list":["T","U","T"]}`},
		{"init without a value", `fromAll().when({$init() {}, $any(s) { return s === undefined ? 'undefined' : s }})`, `"undefined"`},
		{"init anew after null", `fromAll().when({$init: () => ({n: 0}), $any(s, e) { s.n++; return e.eventType == 'U' ? null : s }})`, `{"n":1}`},
		{"null", `fromAll().when({$any: () => null})`, `none`},
		{"this is undefined", `fromAll().when({$any: function() { 'use strict'; return String(this) }})`, `"undefined"`},
		{"no handler", `fromAll()`, `{"n":3}`},
		{"no handler that counts", `fromAll().when({$init() { return {} }, $created() {}})`, `{"n":3}`},
		{"created", `fromAll().when({$init: () => ({a: 1}), $created(s, e) { s.first = e.body.n; return {lost: 1} }, $any(s) { s.n = (s.n || 0) + 1 }})`, `{"a":1,"first":1,"n":3}`},
		{"globals", `var n = 0; fromAll().when({$any: () => ++n})`, `3`},
		{"odd values", `fromAll().when({$any: () => ({u: undefined, a: [undefined, () => 1, 1], big: 12345678901234567890n, f() {}, nan: NaN, inf: -Infinity, zero: -0, d: new Date(0),
			s: new String('x'), n: new Number(1), b: new Boolean(false), m: new Map([[1, 2]]), y: Symbol('y')})})`,
			`{"a":[null,null,1],"big":"12345678901234567890","nan":null,"inf":null,"zero":0,"d":"1970-01-01T00:00:00.000Z","s":"x","n":1,"b":false,"m":{}}`},
		{"a text", `fromAll().when({$any: s => typeof s == 'string' ? s + '!' : 'a"'})`, `"a\"!!"`},
		{"key order", `fromAll().when({$any: () => ({b: 1, 10: 2, a: 3, 9: 4})})`, `{"9":4,"10":2,"b":1,"a":3}`},
		{"toJSON", `fromAll().when({$any: () => ({a: {toJSON: k => 'at ' + k}})})`, `{"a":"at a"}`},
		{"numbers", `fromAll().when({$any: () => [1e21, 1e-7, 0.1, 123456789012345680000, 9007199254740993, -1.5, 5e-324]})`, `[1e+21,1e-7,0.1,123456789012345680000,9007199254740992,-1.5,5e-324]`},
		{"unicode", `fromAll().when({$any: () => '\u0000\u001f\u2028é\ud83d\ude00\ud800\ufffd\b\t\n\f\r\\'})`, `"\u0000\u001f` + "\u2028é😀" + `\ud800` + "\ufffd" + `\b\t\n\f\r\\"`},
		{"odd names", `fromAll().when({$any(s) { s['\ud800'] = 1; s['\ufffd'] = 2; s['"\n'] = 3; s.n = (s.n || 0) + 1 }})`, `{"\ud800":1,"` + "\ufffd" + `":2,"\"\n":3,"n":3}`},
		{"proto", `fromAll().when({$any(s, e) { return JSON.parse('{"__proto__":{"x":1},"y":2}') }})`, `{"__proto__":{"x":1},"y":2}`},
		{"language", `class A { #x = 1; get x() { return this.#x } static s = 2 }
			fromAll().when({$any(s, e) { const {body: {n, ...rest}, ...others} = e; const g = function*() { yield* [1, 2] };
			return [n, rest, others.streamId, [...g()], e?.nope?.x ?? 'none', new A().x, A.s, 'ab'.replace(/(?<l>a)/, '[$<l>]'), 2n ** 64n, [1, [2]].flat(), new Set([1, 1]).size, ` + "`${n}`" + `] }})`,
			`[3,{},"s-1",[1,2],"none",1,2,"[a]b","18446744073709551616",[1,2],1,"3"]`},
		{"microtasks", `var n = 0; fromAll().when({$any() { Promise.resolve().then(() => n++); return n }})`, `2`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := compile(t, c.source)
			out := process(t, h, typed("T", `{"n":1}`), typed("U", `{"n":2}`), typed("T", `{"n":3}`))
			check.Equal(t, show(out.State), c.want, "state")
			// The same, read again before each event.
			if c.name == "globals" || c.name == "microtasks" {
				return
			}
			var state []byte
			for i, name := range []string{"T", "U", "T"} {
				h := compile(t, c.source)
				check.Must(t, h.Load("", state))
				out := check.Value(h.Process(typed(name, fmt.Sprintf(`{"n":%d}`, i+1)))).Must(t)
				if !out.Skipped {
					state = out.State
				}
			}
			check.Equal(t, show(state), c.want, "with restarts: state")
		})
	}
}

func TestSameSliceWhenNothingChanged(t *testing.T) {
	h := compile(t, `fromAll().when({T(s, e) { s.n = e.body.n }})`)
	one := process(t, h, jsonEvent(`{"n":1}`))
	two := check.Value(h.Process(jsonEvent(`{"n":1}`))).Must(t, "another slice for the same text")
	check.Equal(t, &one.State[0], &two.State[0], "another slice for the same text")
	three, _ := h.Process(jsonEvent(`{"n":2}`))
	if string(one.State) != `{"n":1}` || string(three.State) != `{"n":2}` {
		t.Errorf("states %s and %s", one.State, three.State)
	}
}

func TestSkipped(t *testing.T) {
	h := compile(t, `fromAll().when({T: () => 1})`)
	raw := jsonEvent(`text`)
	raw.Flags = 0
	for name, c := range map[string]struct {
		e    *handler.Event
		want bool
	}{
		"another type":       {typed("U", `{}`), true},
		"empty body":         {jsonEvent(``), true},
		"not JSON":           {jsonEvent(`{`), true},
		"redacted":           {jsonEvent("\xff\xff"), true},
		"not stored as JSON": {raw, false},
		"JSON":               {jsonEvent(`1`), false},
	} {
		if out, err := h.Process(c.e); err != nil || out.Skipped != c.want {
			t.Errorf("%s: skipped %t, %v", name, out.Skipped, err)
		}
	}
	out := process(t, compile(t, `fromAll()`), raw)
	check.Equal(t, string(out.State), `"text"`, "state of an event that is not JSON")
}

func TestEventObject(t *testing.T) {
	h := compile(t, `fromCategory('c').when({$any: (s, e) => JSON.parse(JSON.stringify(e))})`)
	e := jsonEvent(`{"b":1, "a":[]}`)
	e.Metadata = []byte(`{"m":true}`)
	e.Category, e.Partition = "c", "p"
	e.Link = &event.Record{Stream: "$ce-c", Number: 3, Metadata: []byte(`{"$o":"x"}`)}
	want := `{"streamId":"s-1","sequenceNumber":7,"eventType":"T","eventId":"0f9fad5b-d9cb-469f-a165-70867728950e","isJson":true,` +
		`"body":{"b":1,"a":[]},"data":{"b":1,"a":[]},"bodyRaw":"{\"b\":1, \"a\":[]}","metadata":{"m":true},"metadataRaw":"{\"m\":true}",` +
		`"linkMetadata":{"$o":"x"},"linkMetadataRaw":"{\"$o\":\"x\"}","partition":"p","category":"c"}`
	check.Equal(t, string(process(t, h, e).State), want, "event")
	raw := &handler.Event{Record: &event.Record{Stream: "s", Type: "T", Number: event.TombstoneNumber, Data: []byte("a\xffb")}}
	want = `{"streamId":"s","sequenceNumber":9223372036854776000,"eventType":"T","eventId":"00000000-0000-0000-0000-000000000000","isJson":false,` +
		`"bodyRaw":"a` + "\ufffd" + `b","metadata":null,"metadataRaw":null,"linkMetadata":null,"linkMetadataRaw":null,"partition":"","category":null}`
	check.Equal(t, string(process(t, h, raw).State), want, "event")
	for source, want := range map[string]string{
		`e.body === e.data`:                  `true`,
		`e.body === e.body`:                  `true`,
		`(e.body = 1, e.body.n)`:             `1`,
		`(delete e.body, e.body.n)`:          `1`,
		`(e.nope = 1, e.nope === undefined)`: `true`,
		`'body' in e && !('nope' in e)`:      `true`,
		`e.hasOwnProperty('streamId')`:       `true`,
		`(() => { 'use strict'; try { e.body = 1 } catch (x) { return x.name } })()`: `"TypeError"`,
		`Object.keys(e).length`:    `14`,
		`({...e}).eventType`:       `"T"`,
		`Object.entries(e).length`: `14`,
		`typeof e.created`:         `"undefined"`,
		`Object.isFrozen(e.body)`:  `false`,
		`String(e)`:                `"[object Object]"`,
	} {
		h := compile(t, `fromAll().when({T: (s, e) => `+source+`})`)
		check.Equal(t, string(process(t, h, jsonEvent(`{"n":1}`)).State), want, source)
	}
	_, err := compile(t, `fromAll().when({T: (s, e) => e.metadata})`).Process(func() *handler.Event { e := jsonEvent(`{}`); e.Metadata = []byte("no"); return e }())
	if f := fault(t, err); f.Message != "the metadata of event 7@s-1 is not JSON" || f.Line != 1 {
		t.Errorf("metadata: %+v", f)
	}
}

// TestReading compares bodies with what they are written as again.
func TestReading(t *testing.T) {
	h := compile(t, `fromAll().when({T: (s, e) => e.body})`)
	for text, want := range map[string]string{
		` [ 1 , -0, 1.50, 1e2, 1E-2, 123456789012345678, -7, 1e999, 0, 9007199254740991 ] `: `[1,0,1.5,100,0.01,123456789012345680,-7,null,0,9007199254740991]`,
		`{"a":1,"b":2,"a":3}`:                                            `{"a":3,"b":2}`,
		`{"2":1,"b":2,"1":3,"-1":4,"01":5}`:                              `{"1":3,"2":1,"b":2,"-1":4,"01":5}`,
		`{"__proto__":{"polluted":1},"constructor":2,"toString":3,"":4}`: `{"__proto__":{"polluted":1},"constructor":2,"toString":3,"":4}`,
		`"\ud83d\ude00 \ud800 \udc00\ud800 \u00e9\/\b\f\n\r\t\"\\"`:      `"😀 \ud800 \udc00\ud800 é/\b\f\n\r\t\"\\"`,
		`{"\ud800":1,"a\nb":2}`:                                          `{"\ud800":1,"a\nb":2}`,
		"\"a\xffb\"":                                                     "\"a\ufffdb\"",
		`[true,false,null,[],{},[[]]]`:                                   `[true,false,null,[],{},[[]]]`,
		`[1,2,3,4,5,6,7,8,9,10]`:                                         `[1,2,3,4,5,6,7,8,9,10]`,
		`"\\\\"`:                                                         `"\\\\"`,
	} {
		check.Equal(t, string(process(t, h, jsonEvent(text)).State), want, text)
	}
	if got := process(t, compile(t, `fromAll().when({T: (s, e) => [e.body.x, ({}).polluted, e.body.polluted, Object.getPrototypeOf(e.body) === Object.prototype]})`),
		jsonEvent(`{"__proto__":{"polluted":1}}`)); string(got.State) != `[null,null,null,true]` {
		t.Errorf("pollution: %s", got.State)
	}
	// Setters of Object.prototype and Array.prototype see nothing of what is read.
	if got := process(t, compile(t, `Object.defineProperty(Object.prototype, 'n', {set() { throw 'seen' }}); fromAll().when({T: (s, e) => e.body.n})`),
		jsonEvent(`{"n":5}`)); string(got.State) != `5` {
		t.Errorf("setter: %s", got.State)
	}
	for depth, want := range map[int]bool{64: true, 65: false} {
		text := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		out, err := h.Process(jsonEvent(text))
		check.Equal(t, err == nil, want, "state of depth", depth, err)
		if err == nil && string(out.State) != text {
			t.Errorf("state %s", out.State)
		}
		if err != nil && fault(t, err).Message != "the state is nested deeper than 64 levels" {
			t.Error(err)
		}
	}
}

func TestPartitions(t *testing.T) {
	for source, want := range map[string]string{
		`e.body.k`: "text true", `e.body.n`: "42 true", `1.5`: "1.5 true", `e.partition`: " true", `''`: " true",
		`null`: " false", `undefined`: " false", `true`: " false", `({})`: " false", `['a']`: " false",
	} {
		h := compile(t, `fromAll().partitionBy(e => `+source+`).when({T() {}})`)
		e := jsonEvent(`{"k":"text","n":42}`)
		e.Partition = "old"
		p, ok, err := h.PartitionOf(e)
		if got := fmt.Sprintf("%s %t", p, ok); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", source, got, err, want)
		}
		if _, ok, err := h.PartitionOf(jsonEvent(`{`)); ok || err != nil {
			t.Errorf("not JSON: %t, %v", ok, err)
		}
	}
	_, _, err := compile(t, `fromAll().partitionBy(e => e.body.a.b).when({T() {}})`).PartitionOf(jsonEvent(`{}`))
	if f := fault(t, err); f.Handler != "partitionBy" || f.Line != 1 {
		t.Errorf("fault %+v", f)
	}
	h := compile(t, `fromAll().foreachStream().when({T(s, e) { s[e.partition] = (s[e.partition] || 0) + 1 }})`)
	states := map[string][]byte{}
	for _, p := range []string{"a", "b", "a", "a", "b"} {
		e := jsonEvent(`{}`)
		e.Partition = p
		check.Must(t, h.Load(p, states[p]))
		out := check.Value(h.Process(e)).Must(t)
		states[p] = out.State
	}
	check.Equal(t, fmt.Sprintf("%s %s", states["a"], states["b"]), `{"a":3} {"b":2}`, "states")
	h.Load("c", []byte(`{`))
	if _, err = h.Process(jsonEvent(`{}`)); fault(t, err).Message != "the state in partition 'c' is not JSON" {
		t.Error(err)
	}
}

func TestBiState(t *testing.T) {
	h := compile(t, `fromAll().foreachStream().when({$init: () => ({own: 0}), $initShared: () => ({all: 0}), $created(s, e) { s[1].created = (s[1].created || 0) + 1 },
		T(s) { s[0].own++; s[1].all++ }, U(s) { return [{own: 100}, s[1]] }, N(s) { return null }, B(s) { return {} }, R(s) { s[0] = null; s[1] = 'x' }})`)
	var shared []byte
	states := map[string][]byte{}
	step := func(p, eventType string) handler.Outcome {
		t.Helper()
		check.Must(t, h.LoadShared(shared))
		check.Must(t, h.Load(p, states[p]))
		out := check.Value(h.Process(typed(eventType, `{}`))).Must(t)
		shared, states[p] = out.Shared, out.State
		return out
	}
	for i, c := range []struct{ partition, eventType, want string }{
		{"a", "T", `{"own":1} {"all":1,"created":1}`},
		{"b", "T", `{"own":1} {"all":2,"created":2}`},
		{"a", "T", `{"own":2} {"all":3,"created":2}`},
		{"b", "U", `{"own":100} {"all":3,"created":2}`},
		{"b", "N", `none {"all":3,"created":2}`},
		{"b", "T", `{"own":1} {"all":4,"created":3}`},
		{"b", "R", `none "x"`},
	} {
		out := step(c.partition, c.eventType)
		check.Equal(t, show(out.State)+" "+show(out.Shared), c.want, "step", i)
	}
	if _, err := h.Process(typed("B", `{}`)); !strings.Contains(fault(t, err).Message, "must be an array") {
		t.Error(err)
	}
}

func TestDeleted(t *testing.T) {
	h := compile(t, `fromAll().foreachStream().when({$init: () => ({n: 0}), $any(s) { s.n++ }, $deleted(s, e, p, x) { s.gone = [e, p, x]; emit('out', 'gone', {p}); return 1 }})`)
	e := jsonEvent(`{}`)
	h.Load("s-1", nil)
	check.Must(t, check.Err(h.Process(e)))
	out, err := h.Deleted(e)
	if err != nil || string(out.State) != `{"n":1,"gone":[null,"s-1",false]}` || len(out.Emitted) != 1 {
		t.Errorf("outcome %s, %v", out.State, err)
	}
	h.Load("s-2", nil)
	if out, _ = h.Deleted(e); string(out.State) != `{"n":0,"gone":[null,"s-2",false]}` {
		t.Errorf("a partition without a state: %s", out.State)
	}
	if out, err = h.Process(typed("$streamDeleted", ``)); err != nil || !out.Skipped {
		t.Errorf("$streamDeleted went to $any: %v", err)
	}
	if out, err = compile(t, `fromAll()`).Deleted(e); err != nil || !out.Skipped {
		t.Errorf("without $deleted: %v", err)
	}
	h = compile(t, `fromAll().foreachStream().when({$deleted(s) { throw new Error('no') }})`)
	if _, err = h.Deleted(e); fault(t, err).Handler != "$deleted" {
		t.Error(err)
	}
}

func TestResults(t *testing.T) {
	for chain, want := range map[string]string{
		``:                              `{"n":1}`,
		`.outputState()`:                `{"n":1}`,
		`.transformBy(s => ({m: s.n}))`: `{"m":1}`,
		`.transformBy(s => { s.n = 2; return s })`:           `{"n":2}`,
		`.filterBy(s => s.n == 1).transformBy(s => 5)`:       `5`,
		`.filterBy(s => 1)`:                                  `none`,
		`.filterBy(s => false).transformBy(s => s.n)`:        `none`,
		`.transformBy(s => undefined).transformBy(s => s.n)`: `none`,
		`.transformBy(s => null)`:                            `none`,
		`.transformBy(s => NaN)`:                             `none`,
		`.$defines_state_transform()`:                        `{"n":1}`,
	} {
		h := compile(t, `fromAll().when({T: (s, e) => e.body})`+chain)
		if r, err := h.Result(); r != nil || err != nil {
			t.Errorf("%s: result %s before anything, %v", chain, r, err)
		}
		process(t, h, jsonEvent(`{"n":1}`))
		r, err := h.Result()
		if got := show(r); err != nil || got != want {
			t.Errorf("%s: result %s, %v, want %s", chain, got, err, want)
		}
		if out := process(t, h, jsonEvent(`{"n":1}`)); string(out.State) != `{"n":1}` {
			t.Errorf("%s: the state became %s", chain, out.State)
		}
	}
	h := compile(t, `fromAll().when({T: (s, e) => e.body}).transformBy(s => s.a.b)`)
	process(t, h, jsonEvent(`{}`))
	if _, err := h.Result(); fault(t, err).Handler != "transformBy" {
		t.Error(err)
	}
}

func TestStateSize(t *testing.T) {
	o := options()
	o.MaxState = 10
	h := compileWith(t, `fromAll().when({T: (s, e) => e.body}).transformBy(s => s + s)`, o)
	process(t, h, jsonEvent(`"123"`))
	if r, err := h.Result(); err == nil {
		t.Errorf("result %s is within the limit", r)
	} else if want := "The state size of projection 'p' is 13 bytes which exceeds the configured MaxProjectionStateSize of 10 bytes."; fault(t, err).Message != want {
		t.Errorf("%v, want %s", err, want)
	}
	h.Load("q", nil)
	_, err := h.Process(jsonEvent(`"1234567890"`))
	check.Equal(t, fault(t, err).Message, "The state size of projection 'p' in partition 'q' is 12 bytes which exceeds the configured MaxProjectionStateSize of 10 bytes.", err)
}

func TestEmitted(t *testing.T) {
	for source, want := range map[string]string{
		`emit('s', 'T', {a: 1, u: undefined})`: `s T true {"a":1}`,
		`emit('s', 'T', [1], {z: 1, $causedBy: 'x', a: {b: [null]}, u: undefined, $correlationId: 'c'})`: `s T true [1] z=1 a={"b":[null]} $correlationId="c"`,
		`linkTo('s', e)`:         `s $> false 7@s-1 to 7@s-1`,
		`linkTo('s', e, {m: 1})`: `s $> false 7@s-1 m=1 to 7@s-1`,
		`linkTo('s', {sequenceNumber: 3, streamId: 'x@y'})`: `s $> false 3@x@y to 3@x@y`,
		`linkStreamTo('s', 'other')`:                        `s $@ false other`,
		`linkStreamTo('s', 'other', {m: 1})`:                `s $@ false other m=1`,
		`copyTo('s', e)`:                                    ``,
		`(() => { const b = {n: 1}; emit('s', 'T', b); b.n = 2; emit('s', 'T', b) })()`: `s T true {"n":1}; s T true {"n":2}`,
		`emit('s')`:                    `fault invalid number of parameters`,
		`emit('s', 'T')`:               `fault invalid number of parameters`,
		`emit(null, 'T', {})`:          `fault Value cannot be null. (Parameter 'streamId')`,
		`emit(' ', 'T', {})`:           `fault Value cannot be null. (Parameter 'streamId')`,
		`emit('s', undefined, {})`:     `fault Value cannot be null. (Parameter 'eventName')`,
		`emit(1, 'T', {})`:             `fault string expected`,
		`emit('s', {}, {})`:            `fault string expected`,
		`emit('s', 'T', undefined)`:    `fault Value cannot be null. (Parameter 'eventBody')`,
		`emit('s', 'T', null)`:         `fault Value cannot be null. (Parameter 'eventBody')`,
		`emit('s', 'T', 'text')`:       `fault object expected`,
		`emit('s', 'T', {}, null)`:     `fault object expected`,
		`emit('s', 'T', {}, 'm')`:      `fault object expected`,
		`linkTo('s')`:                  `fault invalid number of parameters`,
		`linkTo('s', {})`:              `fault Invalid link to event undefined@undefined`,
		`linkTo('s', null)`:            `fault Invalid link to event undefined@undefined`,
		`linkTo('', e)`:                `fault Value cannot be null. (Parameter 'streamId')`,
		`linkStreamTo('s', '')`:        `fault Value cannot be null. (Parameter 'linkedStreamId')`,
		`(emit('s', 'T', {}), null.x)`: `fault Cannot read property 'x' of null`,
	} {
		h := compile(t, `fromAll().when({T(s, e) { `+source+` }})`)
		out, err := h.Process(jsonEvent(`{}`))
		var got []string
		for _, e := range out.Emitted {
			text := fmt.Sprintf("%s %s %t %s", e.Stream, e.Type, e.JSON, e.Data)
			for _, f := range e.Metadata {
				text += fmt.Sprintf(" %s=%s", f.Name, f.Value)
			}
			if e.To != nil {
				text += fmt.Sprintf(" to %d@%s", e.To.Number, e.To.Stream)
			}
			got = append(got, text)
		}
		if err != nil {
			got = append(got, "fault "+fault(t, err).Message)
		}
		if text := strings.Join(got, "; "); text != want && !(strings.Contains(want, "of null") && strings.Contains(text, "fault")) {
			t.Errorf("%s: %q, want %q", source, text, want)
		}
	}
	o := options()
	o.MayEmit = false
	for _, call := range []string{`emit('s', 'T', {})`, `linkTo('s', e)`, `linkStreamTo('s', 't')`} {
		_, err := compileWith(t, `fromAll().when({T(s, e) { `+call+` }})`, o).Process(jsonEvent(`{}`))
		if f := fault(t, err); f.Message != "'emit' is not allowed by the projection/configuration/mode" {
			t.Errorf("%s: %+v", call, f)
		}
	}
	tombstone := &handler.Event{Record: &event.Record{Stream: "s", Type: "T", Number: event.TombstoneNumber}}
	if out := process(t, compile(t, `fromAll().when({T(s, e) { linkTo('l', e) }})`), tombstone); string(out.Emitted[0].Data) != "9223372036854775807@s" {
		t.Errorf("link to a tombstone: %s", out.Emitted[0].Data)
	}
}

func TestLog(t *testing.T) {
	var lines []string
	o := options()
	o.Log = func(text string) { lines = append(lines, text) }
	h := compileWith(t, `log('defined'); fromAll().when({T(s, e) { log('a', 1, {b: [2]}, undefined) }})`, o)
	process(t, h, jsonEvent(`{}`))
	check.Equal(t, strings.Join(lines, "|"), `defined|a 1 {"b":[2]} undefined`)
}

func TestJSONOfTheScript(t *testing.T) {
	for source, want := range map[string]string{
		`JSON.stringify({a: [1, {b: 2}], c: {}}, null, 2)`:                                                `"{\n  \"a\": [\n    1,\n    {\n      \"b\": 2\n    }\n  ],\n  \"c\": {}\n}"`,
		`JSON.stringify({a: 1, b: 2}, ['b'], '\t')`:                                                       `"{\n\t\"b\": 2\n}"`,
		`JSON.stringify({a: 1, b: 'x'}, (k, v) => k == 'a' ? undefined : v)`:                              `"{\"b\":\"x\"}"`,
		`JSON.stringify(undefined) === undefined`:                                                         `true`,
		`JSON.stringify(1n)`:                                                                              `"\"1\""`,
		`JSON.parse('[1,{"a":2}]', (k, v) => typeof v == 'number' ? v * 2 : v)`:                           `[2,{"a":4}]`,
		`JSON.parse('{"a":1,"b":2}', function(k, v) { return k == 'a' ? undefined : v })`:                 `{"b":2}`,
		`(() => { try { JSON.parse('{') } catch (x) { return x instanceof SyntaxError } })()`:             `true`,
		`(() => { const a = []; a.push(a); try { JSON.stringify(a) } catch (x) { return x.message } })()`: `"Converting circular structure to JSON"`,
		`JSON.stringify('\ud800')`:                                                                        `"\"\\ud800\""`,
	} {
		h := compile(t, `fromAll().when({T: (s, e) => `+source+`})`)
		check.Equal(t, string(process(t, h, jsonEvent(`{}`)).State), want, source)
	}
}

func TestAsynchronousHandler(t *testing.T) {
	_, err := compile(t, `fromAll().when({async T(s, e) { return s }})`).Process(jsonEvent(`{}`))
	if f := fault(t, err); !strings.Contains(f.Message, "must not be asynchronous") {
		t.Errorf("fault %+v", f)
	}
}
