// Package outline writes documents that exist as JSON, as XML and as lines of text.
package outline

import (
	"cmp"
	"math"
	"strconv"
	"time"

	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/internal/xmljson"
)

// Field is a leaf of a document.
type Field struct {
	Name  string
	Value string
	Bare  bool // a number or a boolean: JSON has it without quotes, and null when it is empty
}

// Text, Int, Bool and Null are the usual fields.
func Text(name, value string) Field { return Field{Name: name, Value: value} }

func Int(name string, n int64) Field { return Field{name, strconv.FormatInt(n, 10), true} }

func Bool(name string, v bool) Field { return Field{name, strconv.FormatBool(v), true} }

func Null(name string) Field { return Field{Name: name, Bare: true} }

// Time is a time in the format of EventStoreDB. A time that is not known is null.
func Time(name string, t time.Time) Field {
	if t.IsZero() {
		return Null(name)
	}
	return Text(name, t.UTC().Format(TickTime))
}

// Reason is why something failed, null when it did not.
func Reason(text string) Field {
	if text == "" {
		return Null("error")
	}
	return Text("error", text)
}

// Float is a number; one that is none is 0.
func Float(name string, v float64) Field {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	return Field{name, strconv.FormatFloat(v, 'f', -1, 64), true}
}

// Titled is a name as XML and text have it.
func Titled(name string) string {
	if name == "esVersion" { // EventStoreDB writes it so.
		return "ESVersion"
	}
	return string(name[0]&^0x20) + name[1:]
}

// Writer is a document that exists as JSON and as XML. Its elements of XML are
// called as the members of JSON are, but with a capital.
type Writer struct {
	B     []byte
	IsXML bool
	// isLong closes an element without a value with a tag of its own, and leaves null out.
	IsLong bool
	depth  int  // of JSON
	begun  bool // the object or list that is being written has something in it
	// full, when it is set, is given what there is after each item of a list, and
	// may send it on its way.
	Full func([]byte) []byte
}

// Item begins a member of an object or an item of a list.
func (o *Writer) Item() {
	if o.begun {
		o.B = append(o.B, ',')
	}
	o.begun = true
	o.line()
}

func (o *Writer) line() {
	o.B = append(o.B, '\n')
	for range o.depth {
		o.B = append(o.B, "  "...)
	}
}

// Open begins a member or an element. A root has no name in JSON, nor have items of a list.
func (o *Writer) Open(name string, isNamed bool) {
	if o.IsXML {
		o.B = append(o.B, "<"+Titled(name)+">"...)
		return
	}
	if isNamed {
		o.Item()
		o.B = append(o.B, `"`+name+`": `...)
	}
}

func (o *Writer) close(name string) {
	if o.IsXML {
		o.B = append(o.B, "</"+Titled(name)+">"...)
	}
}

// Bracket writes what stands between brackets, in JSON alone with the brackets.
func (o *Writer) Bracket(brackets string, inside func()) {
	if o.IsXML {
		inside()
		return
	}
	o.B = append(o.B, brackets[0])
	begun := o.begun
	o.begun = false
	o.depth++
	inside()
	o.depth--
	if o.begun {
		o.line()
	}
	o.begun = begun
	o.B = append(o.B, brackets[1])
}

// Root writes a document that is an object.
func (o *Writer) Root(name string, members func()) {
	o.Open(name, false)
	o.Bracket("{}", members)
	o.close(name)
}

// Object writes a member that is an object.
func (o *Writer) Object(name string, members func()) {
	o.Open(name, true)
	o.Bracket("{}", members)
	o.close(name)
}

// RootList writes a document that is a list of n objects.
func (o *Writer) RootList(name, item string, n int, members func(i int)) {
	o.Open(name, false)
	o.items(item, n, members)
	o.close(name)
}

// List writes a member that is a list of n objects.
func (o *Writer) List(name, item string, n int, members func(i int)) {
	o.Open(name, true)
	o.items(item, n, members)
	o.close(name)
}

// Texts writes a member that is a list of texts.
func (o *Writer) Texts(name, item string, texts []string) {
	o.Open(name, true)
	o.Bracket("[]", func() {
		for _, text := range texts {
			if !o.IsXML {
				o.Item()
			}
			o.Open(item, false)
			o.Value(Text("", text))
			o.close(item)
		}
	})
	o.close(name)
}

// FlatList writes a list that has no element of its own in XML.
func (o *Writer) FlatList(name, item string, n int, members func(i int)) {
	if !o.IsXML {
		o.Open(name, true)
	}
	o.items(item, n, members)
}

func (o *Writer) items(item string, n int, members func(i int)) {
	o.Bracket("[]", func() {
		for i := range n {
			if !o.IsXML {
				o.Item()
			}
			o.Root(item, func() { members(i) })
			if o.Full != nil {
				o.B = o.Full(o.B)
			}
		}
	})
}

// Leaves writes fields.
func (o *Writer) Leaves(fields ...Field) {
	for _, f := range fields {
		switch {
		case o.IsXML && f.Value == "" && !o.IsLong:
			o.B = append(o.B, "<"+Titled(f.Name)+" />"...)
		case o.IsXML && f.Value == "" && f.Bare:
		default:
			o.Open(f.Name, true)
			o.Value(f)
			o.close(f.Name)
		}
	}
}

// Value writes the value of a field.
func (o *Writer) Value(f Field) {
	switch {
	case o.IsXML:
		o.B = xmljson.AppendText(o.B, f.Value)
	case f.Bare:
		o.B = append(o.B, cmp.Or(f.Value, "null")...)
	default:
		o.B = jsontext.AppendString(o.B, f.Value)
	}
}

// AppendText appends fields as a line of text.
func AppendText(b []byte, fields ...Field) []byte {
	for i, f := range fields {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, Titled(f.Name)+": "+f.Value...)
	}
	return b
}

// Seconds is a time that something took.
func Seconds(seconds float64) Field {
	return Field{"seconds", strconv.FormatFloat(seconds, 'f', 3, 64), true}
}

// TickTime is the format in which EventStoreDB writes times: UTC in ticks of 100 ns without zeros
// at the end.
const TickTime = "2006-01-02T15:04:05.9999999Z"
