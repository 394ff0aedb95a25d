package script

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/dop251/goja"

	"github.com/annalsdb/annals/internal/jsontext"
)

// maxValues bounds how many values one JSON text may become in memory. Objects are the costliest:
// some 400 bytes each, with any text.
const maxValues = 1 << 20

// codec makes values of the engine out of JSON text, and JSON text out of them.
type codec struct {
	e        *engine
	put, odd goja.Callable // set and get properties whose names no Go string can hold
	buf      []byte        // of the JSON text that is written
}

// A reader makes values of the engine out of JSON text. The text was found valid before.
type reader struct {
	j     *codec
	text  []byte
	at    int
	items int // objects and arrays so far
}

// read returns the value of a valid JSON text. It may panic with an exception of the script.
func (j *codec) read(text []byte) goja.Value {
	r := reader{j: j, text: text}
	return r.value()
}

func (r *reader) space() byte {
	for {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return c
		}
	}
}

func (r *reader) value() goja.Value {
	switch c := r.space(); c {
	case '{':
		return r.object()
	case '[':
		return r.array()
	case '"':
		return r.string()
	case 't':
		r.at += 4
		return r.j.e.rt.ToValue(true)
	case 'f':
		r.at += 5
		return r.j.e.rt.ToValue(false)
	case 'n':
		r.at += 4
		return goja.Null()
	}
	return r.number()
}

func (r *reader) count() {
	if r.items&0x3ff == 0x3ff {
		r.j.e.alive()
	}
	if r.items++; r.items > maxValues {
		r.j.e.throw("JSON with more than %d objects and arrays", maxValues)
	}
}

// object makes its properties while the object has no prototype: nothing that the
// script has put there, nor the setter of __proto__, sees them.
func (r *reader) object() goja.Value {
	r.count()
	o := r.j.e.rt.CreateObject(nil)
	r.at++
	for r.space() != '}' {
		if r.text[r.at] == ',' {
			r.at++
			r.space()
		}
		raw := r.span()
		r.space()
		r.at++ // the colon
		if name, ok := plain(raw); ok {
			r.j.e.must(o.Set(name, r.value()))
		} else {
			r.odd(o, raw, r.value())
		}
	}
	r.at++
	r.j.e.must(o.SetPrototype(r.j.e.objects))
	return o
}

// odd sets a property whose name has escapes or is not text.
func (r *reader) odd(o *goja.Object, raw []byte, v goja.Value) {
	name := r.j.decode(raw)
	if _, err := r.j.put(goja.Undefined(), o, name, v); err != nil {
		panic(err)
	}
}

func (r *reader) array() goja.Value {
	r.count()
	var few [8]any
	list := few[:0]
	r.at++
	for r.space() != ']' {
		if r.text[r.at] == ',' {
			r.at++
		}
		list = append(list, r.value())
	}
	r.at++
	return r.j.e.rt.NewArray(list...)
}

// span returns what is between the quotes of the string that begins here, and moves past it.
func (r *reader) span() []byte {
	from := r.at + 1
	for i := from; ; {
		j := i + bytes.IndexByte(r.text[i:], '"')
		k := j
		for k > from && r.text[k-1] == '\\' {
			k--
		}
		i = j + 1
		if (j-k)%2 == 0 {
			r.at = i
			return r.text[from:j]
		}
	}
}

func (r *reader) string() goja.Value {
	raw := r.span()
	if s, ok := plain(raw); ok {
		return r.j.e.rt.ToValue(s)
	}
	return r.j.decode(raw)
}

// plain returns a string that needs no decoding.
func plain(raw []byte) (string, bool) {
	if bytes.IndexByte(raw, '\\') >= 0 || !utf8.Valid(raw) {
		return "", false
	}
	return string(raw), true
}

// decode returns a string with escapes. Halves of surrogate pairs stay what they are.
func (j *codec) decode(raw []byte) goja.Value {
	units := make([]uint16, 0, len(raw))
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			r, n := utf8.DecodeRune(raw[i:])
			units = utf16.AppendRune(units, r)
			i += n
			continue
		}
		i += 2
		switch e := raw[i-1]; e {
		case 'b':
			units = append(units, '\b')
		case 'f':
			units = append(units, '\f')
		case 'n':
			units = append(units, '\n')
		case 'r':
			units = append(units, '\r')
		case 't':
			units = append(units, '\t')
		case 'u':
			n, _ := strconv.ParseUint(string(raw[i:i+4]), 16, 16)
			units = append(units, uint16(n))
			i += 4
		default:
			units = append(units, uint16(e))
		}
	}
	return goja.StringFromUTF16(units)
}

// number reads whole numbers of up to 15 digits itself.
func (r *reader) number() goja.Value {
	from, n, plain := r.at, int64(0), true
	i := from
	if r.text[i] == '-' {
		i++
	}
	digits := i
loop:
	for ; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c >= '0' && c <= '9':
			n = n*10 + int64(c-'0')
		case c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-':
			plain = false
		default:
			break loop
		}
	}
	r.at = i
	negative := digits > from
	if plain && i-digits <= 15 && (n != 0 || !negative) {
		if negative {
			n = -n
		}
		return r.j.e.rt.ToValue(n)
	}
	// A number out of range is infinite or zero, as everywhere in the language.
	f, _ := strconv.ParseFloat(unsafe.String(&r.text[from], i-from), 64)
	return r.j.e.rt.ToValue(f)
}

// parseJSON is JSON.parse.
func (j *codec) parseJSON(call goja.FunctionCall) goja.Value {
	j.e.alive()
	text := []byte(call.Argument(0).String())
	if !jsontext.Valid(text) {
		j.e.throwError("SyntaxError", "the text is not JSON, or nested deeper than %d levels", jsontext.MaxDepth)
	}
	v := j.read(text)
	revive, ok := goja.AssertFunction(call.Argument(1))
	if !ok {
		return v
	}
	root := j.e.rt.NewObject()
	j.e.must(root.Set("", v))
	return j.revive(revive, root, "", 0)
}

func (j *codec) revive(fn goja.Callable, holder *goja.Object, key string, depth int) goja.Value {
	if depth > maxDepth {
		j.e.throwError("RangeError", "JSON nested deeper than %d levels cannot be revived", maxDepth)
	}
	v := holder.Get(key)
	if o, ok := v.(*goja.Object); ok {
		for _, k := range o.Keys() {
			item := j.revive(fn, o, k, depth+1)
			if goja.IsUndefined(item) {
				j.e.must(o.Delete(k))
			} else {
				j.e.must(o.DefineDataProperty(k, item, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_TRUE))
			}
		}
	}
	if v == nil {
		v = goja.Undefined()
	}
	v, err := fn(holder, j.e.rt.ToValue(key), v)
	j.e.must(err)
	return v
}
