package streams

import (
	"bytes"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/internal/xmljson"
)

// decodeXMLBatch reads a list of events: the root's child elements, of
// any name. Data and metadata with elements or attributes become JSON;
// text alone is stored by the rule for strings in JSON batches.
func decodeXMLBatch(body []byte) ([]event.Proposed, error) {
	doc, err := xmljson.Parse(body)
	if err != nil {
		return nil, problem.InvalidBody
	}
	var b writeBatch
	for e := range doc.Root().Children {
		if !b.addXML(e) {
			return nil, problem.InvalidBody
		}
	}
	return b.result()
}

// addXML takes one event. It reports false for an element that can be no event.
func (b *writeBatch) addXML(e xmljson.Element) bool {
	var (
		id             event.ID
		typeText       []byte
		data, metadata bodyValue
		err            error
	)
	for member := range e.Children {
		switch indexNamed(eventNames, member.Name()) {
		case eventID:
			if member.HasChildren() {
				return false
			}
			id = event.ID{}
			if text := bytes.TrimSpace(member.Text()); len(text) > 0 {
				if id, err = event.ParseID(text); err != nil {
					return false
				}
			}
		case eventType:
			if member.HasChildren() {
				return false
			}
			typeText = member.Text()
		case eventData:
			data = xmlValue(member)
		case eventMetadata:
			metadata = xmlValue(member)
		}
	}
	b.add(id, typeText, data, metadata)
	return true
}

func xmlValue(e xmljson.Element) bodyValue {
	if e.IsText() {
		return textValue(e.Text())
	}
	return bodyValue{e.AppendJSON(nil), true}
}
