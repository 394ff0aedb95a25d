package xmljson

import "github.com/annalsdb/annals/internal/jsontext"

// AppendJSON appends the element's content as a JSON value: a string when it
// holds only text or nothing, else an object. It marks the nodes as it goes, so
// no two calls on one document may overlap.
func (e Element) AppendJSON(dst []byte) []byte { return e.d.appendElement(dst, e.id) }

func (d *Document) appendElement(dst []byte, id int32) []byte {
	isObject := d.group(id)
	if !isObject {
		return jsontext.AppendString(dst, Element{d, id}.Text())
	}
	dst = append(dst, '{')
	begun := false
	for child := d.nodes[id].first; child != 0; child = d.nodes[child].next {
		n := &d.nodes[child]
		if n.repeated || n.kind == textNode && d.isBlank(n) {
			continue
		}
		if begun {
			dst = append(dst, ',')
		}
		begun = true
		dst = append(jsontext.AppendString(dst, d.names[n.name].text), ':')
		if n.same == 0 {
			dst = d.appendNode(dst, child)
			continue
		}
		dst = append(dst, '[')
		for one := child; one != 0; one = d.nodes[one].same {
			if one != child {
				dst = append(dst, ',')
			}
			dst = d.appendNode(dst, one)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func (d *Document) appendNode(dst []byte, id int32) []byte {
	n := &d.nodes[id]
	if n.kind == elementNode {
		return d.appendElement(dst, id)
	}
	return jsontext.AppendString(dst, d.text[n.from:n.to])
}

// group links the children of the same name to each other and reports whether
// there are any but text.
func (d *Document) group(parent int32) (isObject bool) {
	d.groups++
	for id := d.nodes[parent].first; id != 0; id = d.nodes[id].next {
		n := &d.nodes[id]
		if n.kind == textNode && d.isBlank(n) {
			continue
		}
		isObject = isObject || n.kind != textNode
		n.same, n.repeated = 0, false
		name := &d.names[n.name]
		if name.grouped == d.groups {
			d.nodes[name.last].same = id
			n.repeated = true
		}
		name.grouped, name.last = d.groups, id
	}
	return isObject
}
