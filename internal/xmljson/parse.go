package xmljson

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// MaxDepth is how deep elements may nest.
const MaxDepth = 1000

var (
	errTooDeep    = errors.New("elements nest too deep")
	errTooLong    = errors.New("document is too long")
	errDirective  = errors.New("document type declarations are not allowed")
	errRoot       = errors.New("document is not one element")
	errUnbalanced = errors.New("elements are not closed in order")
	errTwice      = errors.New("attribute is given twice")
)

// Document is a parsed XML document. Its nodes refer to each other by number,
// so that a document of many small elements stays a few times its own size.
type Document struct {
	nodes   []node
	names   []name
	numbers map[string]int32 // of names
	text    []byte           // of all nodes, one after the other
	groups  int64            // how often group was called
}

// node is an element, an attribute or a piece of text. A zero reference means
// none: node 0 is the root, which nothing refers to.
type node struct {
	name        int32
	kind        nodeKind
	repeated    bool  // a sibling before it has the same name
	first, next int32 // first child; next sibling
	same        int32 // next sibling of the same name, as AppendJSON last linked them
	from, to    int32 // the text, of attributes and pieces of text
}

type nodeKind uint8

const (
	elementNode nodeKind = iota
	attributeNode
	textNode
)

// name is a member's name with what the work on one parent remembers of it.
type name struct {
	text      string
	attribute int32 // number of the last element with such an attribute, plus one
	last      int32 // the last child of this name that group saw
	grouped   int64 // the call of group that saw it
}

// Parse reads a whole document: UTF-8, with or without byte-order mark and whatever its declaration
// says, one root element, no more elements than MaxElements and none with more attributes than
// MaxAttributes. Only the five entities of XML itself are known, a document type declaration is
// refused, nothing outside the text is ever read.
func Parse(body []byte) (*Document, error) {
	if len(body) > math.MaxInt32/4 {
		return nil, errTooLong
	}
	if err := checkSize(body); err != nil {
		return nil, err
	}
	d := &Document{numbers: map[string]int32{}}
	dec := xml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))))
	// Writers into strings declare the encoding of their strings, not of what they send.
	dec.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	type tag struct {
		id   int32
		name xml.Name
		last int32 // child, 0 for none
	}
	var open []tag // the elements not closed yet
	add := func(n node) int32 {
		id := int32(len(d.nodes))
		d.nodes = append(d.nodes, n)
		if top := len(open) - 1; top >= 0 {
			if open[top].last == 0 {
				d.nodes[open[top].id].first = id
			} else {
				d.nodes[open[top].last].next = id
			}
			open[top].last = id
		}
		return id
	}
	for {
		// Raw tokens keep prefixes as written; that tags match is checked here.
		token, err := dec.RawToken()
		if errors.Is(err, io.EOF) {
			if len(open) > 0 || len(d.nodes) == 0 {
				return nil, errRoot
			}
			return d, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parse xml: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if len(open) == 0 && len(d.nodes) > 0 {
				return nil, errRoot
			}
			if len(open) == MaxDepth {
				return nil, errTooDeep
			}
			id := add(node{name: d.number("", t.Name)})
			open = append(open, tag{id: id, name: t.Name})
			for _, a := range t.Attr {
				number := d.number("@", a.Name)
				if d.names[number].attribute == id+1 {
					return nil, errTwice
				}
				d.names[number].attribute = id + 1
				from := int32(len(d.text))
				d.text = append(d.text, a.Value...)
				add(node{name: number, kind: attributeNode, from: from, to: int32(len(d.text))})
			}
		case xml.EndElement:
			top := len(open) - 1
			if top < 0 || open[top].name != t.Name {
				return nil, errUnbalanced
			}
			open = open[:top]
		case xml.CharData:
			if len(open) == 0 {
				if len(bytes.TrimSpace(t)) > 0 {
					return nil, errRoot
				}
				continue
			}
			from := int32(len(d.text))
			d.text = append(d.text, t...)
			// Sections, comments and instructions cut text into pieces that belong together.
			if n := open[len(open)-1].last; n != 0 && d.nodes[n].kind == textNode {
				d.nodes[n].to = int32(len(d.text))
				continue
			}
			add(node{name: d.number("", xml.Name{Local: "#text"}), kind: textNode, from: from, to: int32(len(d.text))})
		case xml.Directive:
			return nil, errDirective
		}
	}
}

// number returns the number of a member's name: the sign, then the name as written, escapes undone.
func (d *Document) number(sign string, n xml.Name) int32 {
	text := n.Local
	if n.Space != "" {
		text = n.Space + ":" + text
	}
	text = decodeName(text)
	if sign != "" {
		text = sign + text
	}
	id, ok := d.numbers[text]
	if !ok {
		id = int32(len(d.names))
		d.names = append(d.names, name{text: text})
		d.numbers[text] = id
	}
	return id
}

// Root returns the root element.
func (d *Document) Root() Element { return Element{d, 0} }

// Element is one element of a document.
type Element struct {
	d  *Document
	id int32
}

// Name returns the element's name without prefix, escapes undone.
func (e Element) Name() string {
	text := e.d.names[e.d.nodes[e.id].name].text
	return text[strings.LastIndexByte(text, ':')+1:]
}

// Children calls yield for each child element, in order, until it returns false.
func (e Element) Children(yield func(Element) bool) {
	for id := e.d.nodes[e.id].first; id != 0; id = e.d.nodes[id].next {
		if e.d.nodes[id].kind == elementNode && !yield(Element{e.d, id}) {
			return
		}
	}
}

// HasChildren reports whether the element has child elements.
func (e Element) HasChildren() bool {
	for range e.Children {
		return true
	}
	return false
}

// IsText reports whether the element holds nothing but text, or nothing at all.
// Namespace declarations and the attributes of XML itself do not count.
func (e Element) IsText() bool {
	for id := e.d.nodes[e.id].first; id != 0; id = e.d.nodes[id].next {
		switch n := &e.d.nodes[id]; n.kind {
		case elementNode:
			return false
		case attributeNode:
			text := e.d.names[n.name].text
			if text != "@xmlns" && !strings.HasPrefix(text, "@xmlns:") && !strings.HasPrefix(text, "@xml:") {
				return false
			}
		}
	}
	return true
}

// Text returns the element's own text as written, empty when it is white space
// alone. It is a part of the document when no child element cuts it.
func (e Element) Text() []byte {
	var text []byte
	for id := e.d.nodes[e.id].first; id != 0; id = e.d.nodes[id].next {
		if n := &e.d.nodes[id]; n.kind == textNode && !e.d.isBlank(n) {
			piece := e.d.text[n.from:n.to:n.to]
			if text == nil {
				text = piece
			} else {
				text = append(text, piece...)
			}
		}
	}
	return text
}

// isBlank reports whether the piece of text is white space between elements.
func (d *Document) isBlank(n *node) bool { return len(bytes.TrimSpace(d.text[n.from:n.to])) == 0 }
