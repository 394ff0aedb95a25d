package script

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dop251/goja"

	"github.com/annalsdb/annals/internal/jsontext"
)

const (
	// maxStateDepth is how deep a state may nest.
	maxStateDepth = 64
	// maxDepth is how deep anything else may nest that is written as JSON.
	maxDepth = 1000
	// maxText bounds a JSON text that is written: that of a record.
	maxText = 16 << 20
)

// A writer makes JSON text out of values of the engine, as JSON.stringify does except
// that BigInts become strings. All it does may panic with an exception of the script.
type writer struct {
	j     *codec
	buf   []byte
	stack []*goja.Object // what is open
	depth int            // how deep it may nest
	what  string         // that is written, for texts
	count int            // objects and arrays so far

	// Of JSON.stringify.
	replace goja.Callable
	allow   []string
	allowed bool
	gap     string
}

// write returns the JSON text of a value, which stays valid until the next write; not
// ok: it has none.
func (j *codec) write(v goja.Value, what string, depth int) (text []byte, ok bool) {
	w := writer{j: j, buf: j.buf[:0], depth: depth, what: what}
	ok = w.value(v, "", nil)
	if j.buf = w.buf; cap(j.buf) > maxKept {
		j.buf = nil
	}
	return w.buf, ok
}

// maxKept is how large a buffer is kept for the next text.
const maxKept = 64 << 10

// value appends a value. Not ok: it has no text, and nothing was appended.
func (w *writer) value(v goja.Value, key string, holder *goja.Object) bool {
	if len(w.buf) > maxText {
		w.j.e.throwError("RangeError", "%s is larger than %d bytes", w.what, maxText)
	}
	o, isObject := v.(*goja.Object)
	if isObject {
		if fn, ok := goja.AssertFunction(o.Get("toJSON")); ok {
			v = w.call(fn, o, w.j.e.rt.ToValue(key))
			o, isObject = v.(*goja.Object)
		}
	}
	if w.replace != nil {
		v = w.call(w.replace, holder, w.j.e.rt.ToValue(key), v)
		o, isObject = v.(*goja.Object)
	}
	if isObject {
		class := o.ClassName()
		switch class {
		case "Function":
			return false
		case "Number":
			v = o.ToNumber()
		case "String":
			v = o.ToString()
		case "Boolean":
			v = w.j.e.rt.ToValue(o.Export() == any(true))
		default:
			if _, ok := goja.AssertFunction(o); ok {
				return false
			}
			w.open(o)
			if class == "Array" {
				w.array(o)
			} else {
				w.object(o)
			}
			w.stack = w.stack[:len(w.stack)-1]
			return true
		}
	}
	switch x := v.(type) {
	case nil:
		return false
	case goja.String:
		w.string(x)
	case *goja.Symbol:
		return false
	default:
		switch {
		case goja.IsUndefined(v):
			return false
		case goja.IsNull(v):
			w.buf = append(w.buf, "null"...)
		case goja.IsBigInt(v):
			w.buf = append(append(append(w.buf, '"'), v.String()...), '"')
		case goja.IsNumber(v):
			w.number(v)
		default:
			w.buf = strconv.AppendBool(w.buf, v.ToBoolean())
		}
	}
	return true
}

func (w *writer) call(fn goja.Callable, this goja.Value, args ...goja.Value) goja.Value {
	v, err := fn(this, args...)
	w.j.e.must(err)
	return v
}

// open begins an object or an array.
func (w *writer) open(o *goja.Object) {
	for _, other := range w.stack {
		if other == o {
			w.j.e.throw("Converting circular structure to JSON")
		}
	}
	if len(w.stack) >= w.depth {
		w.j.e.throwError("RangeError", "%s is nested deeper than %d levels", w.what, w.depth)
	}
	w.stack = append(w.stack, o)
	if w.count++; w.count&0x3ff == 0 {
		w.j.e.alive()
	}
}

// line begins a new line where the text is indented.
func (w *writer) line(depth int) {
	if w.gap != "" {
		w.buf = append(w.buf, '\n')
		for range depth {
			w.buf = append(w.buf, w.gap...)
		}
	}
}

func (w *writer) array(o *goja.Object) {
	n := o.Get("length").ToInteger()
	w.buf = append(w.buf, '[')
	for i := range n {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		w.line(len(w.stack))
		key := strconv.FormatInt(i, 10)
		if !w.value(o.Get(key), key, o) {
			w.buf = append(w.buf, "null"...)
		}
		if i&0xfff == 0xfff {
			w.j.e.alive()
		}
	}
	if n > 0 {
		w.line(len(w.stack) - 1)
	}
	w.buf = append(w.buf, ']')
}

func (w *writer) object(o *goja.Object) {
	keys := w.allow
	if !w.allowed {
		keys = o.Keys()
	}
	w.buf = append(w.buf, '{')
	begin := len(w.buf)
	for i, key := range keys {
		mark := len(w.buf)
		if mark > begin {
			w.buf = append(w.buf, ',')
		}
		w.line(len(w.stack))
		if !w.allowed && strings.Contains(key, "\ufffd") {
			w.oddKey(o, i, key)
		} else {
			w.buf = jsontext.AppendString(w.buf, key)
		}
		if w.buf = append(w.buf, ':'); w.gap != "" {
			w.buf = append(w.buf, ' ')
		}
		if !w.value(w.get(o, i, key), key, o) {
			w.buf = w.buf[:mark]
		}
		if i&0xfff == 0xfff {
			w.j.e.alive()
		}
	}
	if len(w.buf) > begin {
		w.line(len(w.stack) - 1)
	}
	w.buf = append(w.buf, '}')
}

// get is the property of a key.
func (w *writer) get(o *goja.Object, i int, key string) goja.Value {
	if !w.allowed && strings.Contains(key, "\ufffd") {
		return w.call(w.j.odd, goja.Undefined(), o, w.j.e.rt.ToValue(i), w.j.e.rt.ToValue(true))
	}
	return o.Get(key)
}

// oddKey writes a key that may hold half of a surrogate pair, which no Go string can.
func (w *writer) oddKey(o *goja.Object, i int, key string) {
	if s, ok := w.call(w.j.odd, goja.Undefined(), o, w.j.e.rt.ToValue(i)).(goja.String); ok {
		w.string(s)
		return
	}
	w.buf = jsontext.AppendString(w.buf, key)
}

func (w *writer) number(v goja.Value) {
	f := v.ToFloat()
	switch {
	case f == math.Trunc(f) && math.Abs(f) < 1<<53:
		w.buf = strconv.AppendInt(w.buf, int64(f), 10)
	case math.IsNaN(f) || math.IsInf(f, 0):
		w.buf = append(w.buf, "null"...)
	default:
		w.buf = append(w.buf, v.String()...)
	}
}

// string writes what no Go string can hold, halves of surrogate pairs, as escapes.
func (w *writer) string(s goja.String) {
	text := s.String()
	if len(text) > maxText {
		w.j.e.throwError("RangeError", "%s is larger than %d bytes", w.what, maxText)
	}
	if !strings.Contains(text, "\ufffd") {
		w.buf = jsontext.AppendString(w.buf, text)
		return
	}
	w.buf = append(w.buf, '"')
	units := s.Length()
	for i := 0; i < units; i++ {
		r := rune(s.CharAt(i))
		if i+1 < units {
			if pair := utf16.DecodeRune(r, rune(s.CharAt(i+1))); pair != utf8.RuneError {
				r = pair
				i++
			}
		}
		if utf16.IsSurrogate(r) {
			w.buf = fmt.Appendf(w.buf, `\u%04x`, r)
			continue
		}
		n := len(w.buf)
		w.buf = jsontext.AppendString(w.buf, string(r))
		w.buf = append(w.buf[:n], w.buf[n+1:len(w.buf)-1]...) // Without the quotes.
	}
	w.buf = append(w.buf, '"')
}

// stringify is JSON.stringify.
func (j *codec) stringify(call goja.FunctionCall) goja.Value {
	j.e.alive()
	w := writer{j: j, depth: maxDepth, what: "the value"}
	if by, ok := call.Argument(1).(*goja.Object); ok {
		if fn, ok := goja.AssertFunction(by); ok {
			w.replace = fn
		} else if by.ClassName() == "Array" {
			w.allowed = true
			seen := map[string]bool{}
			for _, i := range by.Keys() {
				if v := by.Get(i); goja.IsString(v) || goja.IsNumber(v) {
					if key := v.String(); !seen[key] {
						seen[key] = true
						w.allow = append(w.allow, key)
					}
				}
			}
		}
	}
	switch gap := call.Argument(2); {
	case goja.IsNumber(gap):
		w.gap = strings.Repeat(" ", int(min(max(gap.ToInteger(), 0), 10)))
	case goja.IsString(gap):
		if s := gap.(goja.String); s.Length() > 10 {
			w.gap = s.Substring(0, 10).String()
		} else {
			w.gap = s.String()
		}
	}
	holder := j.e.rt.NewObject()
	j.e.must(holder.Set("", call.Argument(0)))
	if !w.value(call.Argument(0), "", holder) {
		return goja.Undefined()
	}
	return j.e.rt.ToValue(string(w.buf))
}
