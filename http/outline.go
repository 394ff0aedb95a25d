package httpapi

import (
	"math"
	"strconv"

	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/internal/xmljson"
)

const xmlProlog = atom.Prolog

// outline is a document that exists as JSON and as XML. Its elements of XML are
// called as the members of JSON are, but with a capital.
type outline struct {
	b     []byte
	isXML bool
	depth int  // of JSON
	begun bool // the object or list that is being written has something in it
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
		o.b = append(o.b, '<')
		o.element(name)
		return
	}
	if isNamed {
		o.item()
		o.b = append(o.b, '"')
		o.b = append(o.b, name...)
		o.b = append(o.b, `": `...)
	}
}

func (o *outline) close(name string) {
	if o.isXML {
		o.b = append(o.b, "</"...)
		o.element(name)
	}
}

func (o *outline) element(name string) {
	o.b = append(o.b, name[0]&^0x20)
	o.b = append(o.b, name[1:]...)
	o.b = append(o.b, '>')
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

func (o *outline) text(name, value string) {
	o.open(name, true)
	o.value(value)
	o.close(name)
}

// value writes a text alone.
func (o *outline) value(text string) {
	if o.isXML {
		o.b = xmljson.AppendText(o.b, text)
	} else {
		o.b = jsontext.AppendString(o.b, text)
	}
}

// position writes a number as a text; one below 0 is none.
func (o *outline) position(name string, n int64) {
	switch {
	case n >= 0:
		o.text(name, strconv.FormatInt(n, 10))
	case !o.isXML:
		o.open(name, true)
		o.b = append(o.b, "null"...)
	}
}

func (o *outline) integer(name string, n int64) {
	o.open(name, true)
	o.b = strconv.AppendInt(o.b, n, 10)
	o.close(name)
}

// float writes a number; one that is none is 0.
func (o *outline) float(name string, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	o.open(name, true)
	o.b = strconv.AppendFloat(o.b, v, 'f', -1, 64)
	o.close(name)
}

func (o *outline) bool(name string, v bool) {
	o.open(name, true)
	o.b = strconv.AppendBool(o.b, v)
	o.close(name)
}
