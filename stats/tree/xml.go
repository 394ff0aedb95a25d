package tree

import (
	"bytes"
	"encoding/xml"
	"unicode"
)

// AppendXML appends the node as an XML document with the root element Stats,
// for any key of the node. Elements are named like the keys in JSON;
// characters that the name of an element may not hold are replaced by "_", a
// digit in front gets one before it, and such an element has the key in the
// attribute name. A statistic without a value is an empty element.
func (n *Node) AppendXML(dst []byte, metadata bool) []byte {
	w := bytes.NewBuffer(dst)
	w.WriteString(`<?xml version="1.0" encoding="utf-8"?><Stats>`)
	n.writeXML(w, metadata)
	w.WriteString("</Stats>")
	return w.Bytes()
}

// writeXML writes what is inside the node's element.
func (n *Node) writeXML(w *bytes.Buffer, metadata bool) {
	children := n.shown(metadata)
	if len(children) == 0 {
		escape(w, text(n.figure.Value))
	}
	for _, c := range children {
		name := elementName(c.key)
		w.WriteString("<" + name)
		if name != c.key {
			w.WriteString(` name="`)
			escape(w, c.key)
			w.WriteByte('"')
		}
		w.WriteByte('>')
		c.writeXML(w, metadata)
		w.WriteString("</" + name + ">")
	}
}

// A buffer takes everything.
func escape(w *bytes.Buffer, s string) { _ = xml.EscapeText(w, []byte(s)) }

// elementName turns a key into a name. A colon would need a namespace declaration, so it is
// replaced as well.
func elementName(key string) string {
	var name []rune
	for i, r := range key {
		inner := '0' <= r && r <= '9' || r == '-' || r == '.'
		switch {
		case i == 0 && '0' <= r && r <= '9':
			name = append(name, '_', r)
		case r == '_' || unicode.Is(letters, r) || i > 0 && inner:
			name = append(name, r)
		default:
			name = append(name, '_')
		}
	}
	if name == nil {
		return "_"
	}
	return string(name)
}

// letters are those that a name may begin with by every edition of XML 1.0. The
// first four allow fewer than the fifth, and many readers know those alone.
var letters = &unicode.RangeTable{
	R16: []unicode.Range16{
		{'A', 'Z', 1}, {'a', 'z', 1}, {0xC0, 0xD6, 1}, {0xD8, 0xF6, 1}, {0xF8, 0x131, 1}, {0x134, 0x13E, 1}, {0x141, 0x148, 1},
		{0x14A, 0x17E, 1}, {0x388, 0x38A, 1}, {0x38E, 0x3A1, 1}, {0x3A3, 0x3CE, 1}, {0x401, 0x40C, 1}, {0x40E, 0x44F, 1},
		{0x451, 0x45C, 1}, {0x5D0, 0x5EA, 1}, {0x621, 0x63A, 1}, {0x3041, 0x3094, 1}, {0x30A1, 0x30FA, 1}, {0x4E00, 0x9FA5, 1},
		{0xAC00, 0xD7A3, 1},
	},
	LatinOffset: 4,
}
