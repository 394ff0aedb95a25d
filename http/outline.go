package httpapi

import (
	"cmp"
	"math"
	"strconv"
	"time"

	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/internal/xmljson"
)

const xmlProlog = atom.Prolog

// field is a leaf of a document.
type field struct {
	name  string
	value string
	bare  bool // a number or a boolean: JSON has it without quotes, and null when it is empty
}

func textField(name, value string) field { return field{name: name, value: value} }

func intField(name string, n int64) field { return field{name, strconv.FormatInt(n, 10), true} }

func boolField(name string, v bool) field { return field{name, strconv.FormatBool(v), true} }

func nullField(name string) field { return field{name: name, bare: true} }

// timeField is a time in the format of EventStoreDB. A time that is not known is null.
func timeField(name string, t time.Time) field {
	if t.IsZero() {
		return nullField(name)
	}
	return textField(name, t.UTC().Format(tickTime))
}

// reasonField is why something failed, null when it did not.
func reasonField(text string) field {
	if text == "" {
		return nullField("error")
	}
	return textField("error", text)
}

// floatField is a number; one that is none is 0.
func floatField(name string, v float64) field {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	return field{name, strconv.FormatFloat(v, 'f', -1, 64), true}
}

// titled is a name as XML and text have it.
func titled(name string) string {
	if name == "esVersion" { // EventStoreDB writes it so.
		return "ESVersion"
	}
	return string(name[0]&^0x20) + name[1:]
}

// outline is a document that exists as JSON and as XML. Its elements of XML are
// called as the members of JSON are, but with a capital.
type outline struct {
	b     []byte
	isXML bool
	// isLong closes an element without a value with a tag of its own, and leaves null out.
	isLong bool
	depth  int  // of JSON
	begun  bool // the object or list that is being written has something in it
	// full, when it is set, is given what there is after each item of a list, and
	// may send it on its way.
	full func([]byte) []byte
}

func newOutline(x *exchange) outline {
	o := outline{b: x.out[:0], isXML: !x.media.form.isJSON()}
	if o.isXML {
		o.b = append(o.b, xmlProlog...)
	}
	return o
}

// item begins a member of an object or an item of a list.
func (o *outline) item() {
	if o.begun {
		o.b = append(o.b, ',')
	}
	o.begun = true
	o.line()
}

func (o *outline) line() {
	o.b = append(o.b, '\n')
	for range o.depth {
		o.b = append(o.b, "  "...)
	}
}

// open begins a member or an element. A root has no name in JSON, nor have items of a list.
func (o *outline) open(name string, isNamed bool) {
	if o.isXML {
		o.b = append(o.b, "<"+titled(name)+">"...)
		return
	}
	if isNamed {
		o.item()
		o.b = append(o.b, `"`+name+`": `...)
	}
}

func (o *outline) close(name string) {
	if o.isXML {
		o.b = append(o.b, "</"+titled(name)+">"...)
	}
}

// bracket writes what stands between brackets, in JSON alone with the brackets.
func (o *outline) bracket(brackets string, inside func()) {
	if o.isXML {
		inside()
		return
	}
	o.b = append(o.b, brackets[0])
	begun := o.begun
	o.begun = false
	o.depth++
	inside()
	o.depth--
	if o.begun {
		o.line()
	}
	o.begun = begun
	o.b = append(o.b, brackets[1])
}

func (o *outline) root(name string, members func()) {
	o.open(name, false)
	o.bracket("{}", members)
	o.close(name)
}

func (o *outline) object(name string, members func()) {
	o.open(name, true)
	o.bracket("{}", members)
	o.close(name)
}

// rootList writes a document that is a list of n objects.
func (o *outline) rootList(name, item string, n int, members func(i int)) {
	o.open(name, false)
	o.items(item, n, members)
	o.close(name)
}

func (o *outline) list(name, item string, n int, members func(i int)) {
	o.open(name, true)
	o.items(item, n, members)
	o.close(name)
}

// flatList writes a list that has no element of its own in XML.
func (o *outline) flatList(name, item string, n int, members func(i int)) {
	if !o.isXML {
		o.open(name, true)
	}
	o.items(item, n, members)
}

func (o *outline) items(item string, n int, members func(i int)) {
	o.bracket("[]", func() {
		for i := range n {
			if !o.isXML {
				o.item()
			}
			o.root(item, func() { members(i) })
			if o.full != nil {
				o.b = o.full(o.b)
			}
		}
	})
}

// leaves writes fields.
func (o *outline) leaves(fields ...field) {
	for _, f := range fields {
		switch {
		case o.isXML && f.value == "" && !o.isLong:
			o.b = append(o.b, "<"+titled(f.name)+" />"...)
		case o.isXML && f.value == "" && f.bare:
		default:
			o.open(f.name, true)
			o.value(f)
			o.close(f.name)
		}
	}
}

// value writes the value of a field.
func (o *outline) value(f field) {
	switch {
	case o.isXML:
		o.b = xmljson.AppendText(o.b, f.value)
	case f.bare:
		o.b = append(o.b, cmp.Or(f.value, "null")...)
	default:
		o.b = jsontext.AppendString(o.b, f.value)
	}
}

// sendFields answers with the members of one object, each on a line of its own in text.
func sendFields(x *exchange, root string, fields ...field) error {
	if x.media.form == formText {
		x.out = x.out[:0]
		for i, f := range fields {
			if i > 0 {
				x.out = append(x.out, '\n')
			}
			x.out = appendTextFields(x.out, f)
		}
	} else {
		o := newOutline(x)
		o.root(root, func() { o.leaves(fields...) })
		x.out = o.b
	}
	x.ok()
	return nil
}

// appendTextFields appends fields as a line of text.
func appendTextFields(b []byte, fields ...field) []byte {
	for i, f := range fields {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, titled(f.name)+": "+f.value...)
	}
	return b
}
