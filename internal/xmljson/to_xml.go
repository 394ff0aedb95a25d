package xmljson

import "slices"

import "github.com/annalsdb/annals/internal/jsontext"

// What AppendXML writes at most. A long name with an array of many short
// elements would otherwise come out thousands of times as long as it went in.
const (
	growthFactor = 32
	growthFloor  = 64 << 10
)

// maxAttributes bounds the attributes of one element; further members become
// child elements. Attributes are compared with each other, for XML allows none twice.
const maxAttributes = 32

// AppendXML appends one element of the given name with the JSON text as its
// content. Nothing, null and {} give an empty element, a scalar gives text. Text
// that is an array or not JSON at all becomes the element's text as it is, so
// that there is always exactly one element; so does text whose XML would be many
// times as long.
func AppendXML(dst []byte, name string, json []byte) []byte {
	at := jsontext.Space(json, 0)
	if at == len(json) {
		return append(appendName(append(dst, '<'), name), " />"...)
	}
	if json[at] != '[' && jsontext.Valid(json) {
		start := len(dst)
		w := writer{dst: dst, json: json, limit: start + growthFloor + growthFactor*len(json)}
		w.element([]byte(name), at)
		if !w.full() {
			return w.dst
		}
		dst = w.dst[:start]
	}
	dst = append(appendName(append(dst, '<'), name), '>')
	dst = AppendText(dst, json)
	return append(appendName(append(dst, "</"...), name), '>')
}

// writer walks a valid text once. Each method is given where a value begins and
// returns where it ends. Recursion is as deep as the text, which jsontext bounds.
type writer struct {
	dst   []byte
	json  []byte
	limit int
	text  []byte // scratch for strings with escapes
}

func (w *writer) full() bool { return len(w.dst) > w.limit }

// element writes the value at offset at as an element. Of an array inside an
// array the elements become child elements of the same name.
func (w *writer) element(name []byte, at int) int {
	w.dst = appendName(append(w.dst, '<'), name)
	end, isEmpty := w.content(name, at)
	if isEmpty {
		w.dst = append(w.dst, " />"...)
		return end
	}
	w.dst = append(appendName(append(w.dst, "</"...), name), '>')
	return end
}

// content writes attributes, the end of the opening tag and what is inside. It
// reports whether there is nothing inside and the tag is still open.
func (w *writer) content(name []byte, at int) (end int, isEmpty bool) {
	switch w.json[at] {
	case '{':
		return w.object(at)
	case '[':
		w.dst = append(w.dst, '>')
		return w.array(name, at), false
	}
	end, kind := jsontext.End(w.json, at)
	if kind == jsontext.Null {
		return end, true
	}
	w.dst = append(w.dst, '>')
	w.scalar(w.json[at:end], kind)
	return end, false
}

func (w *writer) scalar(value []byte, kind jsontext.Kind) {
	switch kind {
	case jsontext.String:
		w.dst = AppendText(w.dst, w.unquote(value))
	case jsontext.Null:
	default:
		w.dst = append(w.dst, value...)
	}
}

// unquote returns the text of a string, valid until the next call.
func (w *writer) unquote(raw []byte) []byte {
	w.text = jsontext.AppendUnquote(w.text[:0], raw)
	return w.text
}

func (w *writer) array(name []byte, at int) int {
	e := jsontext.ArrayAt(w.json, at)
	for !w.full() {
		at, ok := e.Begin()
		if !ok {
			break
		}
		e.Resume(w.element(name, at))
	}
	end, _ := e.End()
	return end
}

func (w *writer) object(at int) (end int, isEmpty bool) {
	m := jsontext.ObjectAt(w.json, at)
	var given [maxAttributes]string
	count, isTagOpen := 0, true
	for !w.full() {
		at, ok := m.Begin()
		if !ok {
			break
		}
		name := jsontext.Unquote(nil, m.Name)
		isScalar := w.json[at] != '{' && w.json[at] != '['
		if isTagOpen {
			if isScalar && count < maxAttributes && isAttribute(name, given[:count]) {
				given[count] = string(name)
				count++
				m.Resume(w.attribute(name[1:], at))
				continue
			}
			isTagOpen = false
			w.dst = append(w.dst, '>')
		}
		switch {
		case isScalar && string(name) == "#text":
			valueEnd, kind := jsontext.End(w.json, at)
			w.scalar(w.json[at:valueEnd], kind)
			m.Resume(valueEnd)
		case w.json[at] == '[':
			m.Resume(w.array(name, at))
		default:
			m.Resume(w.element(name, at))
		}
	}
	end, _ = m.End()
	return end, isTagOpen
}

// isAttribute reports whether a member becomes an attribute. Names that would
// declare a namespace do not, nor does one that is there already.
func isAttribute(name []byte, given []string) bool {
	if len(name) < 2 || name[0] != '@' || string(name) == "@xmlns" {
		return false
	}
	return !slices.Contains(given, string(name))
}

func (w *writer) attribute(name []byte, at int) int {
	end, kind := jsontext.End(w.json, at)
	w.dst = append(appendName(append(w.dst, ' '), name), `="`...)
	if kind == jsontext.String {
		w.dst = AppendAttribute(w.dst, w.unquote(w.json[at:end]))
	} else {
		w.scalar(w.json[at:end], kind)
	}
	w.dst = append(w.dst, '"')
	return end
}
