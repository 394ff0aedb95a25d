package script_test

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/script"
)

// FuzzBody hands any bytes to a script as a body: JSON is read as it was written, all else is
// skipped.
func FuzzBody(f *testing.F) {
	for _, s := range []string{order, `{"__proto__":{"a":1},"2":1,"1":2}`, `"\ud800\udc00\ud800"`, `[[[[]]]]`, `{"a":1,"a":2}`, `-0`, `1e400`, "\"\xff\"", `{"\ud800":1}`, `"\\"`} {
		f.Add([]byte(s))
	}
	h := compile(f, `fromAll().when({$any: (s, e) => JSON.stringify(e.body) === JSON.stringify(JSON.parse(JSON.stringify(e.body))) ? [e.body] : 'differs'})`)
	f.Fuzz(func(t *testing.T, body []byte) {
		check.Must(t, h.Load("", nil))
		out, err := h.Process(&handler.Event{Record: &event.Record{Stream: "s", Type: "T", Flags: event.FlagJSON, Data: body}})
		if err != nil {
			_ = fault(t, err)
			return
		}
		if out.Skipped {
			if json.Valid(body) && len(body) < 10000 {
				t.Fatalf("%q is JSON", body)
			}
			return
		}
		var want, got []any
		if string(out.State) == `"differs"` || json.Unmarshal(out.State, &got) != nil {
			t.Fatalf("%q became %q", body, out.State)
		}
		if json.Unmarshal([]byte("["+string(body)+"]"), &want) != nil || !utf8.Valid(body) {
			return // a number out of range
		}
		check.MustDeep(t, want, got, body, "became", out.State)
	})
}

// FuzzScript runs any text: it ends, with a definition or a fault.
func FuzzScript(f *testing.F) {
	for _, c := range hostile {
		f.Add(c.body)
	}
	for _, c := range endless {
		f.Add("const it = {[Symbol.iterator]: () => ({next: Object})}; " + c.body)
	}
	for _, body := range expressions {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		o := script.Options{CompileTimeout: 50 * time.Millisecond, ExecutionTimeout: 5 * time.Millisecond, MayEmit: true, MaxState: 1 << 20}
		h, err := script.Compile(`fromAll().when({$any(s, e) { `+body+"\n}})", o)
		if err != nil {
			_ = fault(t, err)
			return
		}
		defer h.Close()
		began := time.Now()
		if _, err = h.Process(jsonEvent(order)); err != nil {
			_ = fault(t, err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%q took %v", body, took)
		}
	})
}
