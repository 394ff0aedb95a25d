package streams

import (
	"errors"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
)

func TestDecodeXMLBatch(t *testing.T) {
	const (
		invalid   = "error: " + bodyText
		emptyID   = "error: Empty eventId provided."
		emptyType = "error: Empty eventType provided."
	)
	one := func(members string) string {
		return "<Events><Event><EventId>$ID</EventId><EventType>T</EventType>" + members + "</Event></Events>"
	}
	testBatches(t, decodeXMLBatch, []batchCase{
		{"the usual", one(`<Data><a>1</a></Data><Metadata/>`), `T json {"a":"1"}`},
		{"repeated elements", one(`<Data><a>1</a><a>2</a><b x="y">z</b></Data>`), `T json {"a":["1","2"],"b":{"@x":"y","#text":"z"}}`},
		{"text", one(`<Data>0@orders-7</Data>`), `T 0@orders-7`},
		{"text is not trimmed", one("<Data> x </Data>"), `T  x `},
		{"text that is an object", one(`<Data> {"a":"&lt;"} </Data>`), `T json {"a":"<"}`},
		{"section", one(`<Data><![CDATA[[1,2]]]></Data>`), `T json [1,2]`},
		{"attribute", one(`<Data id="7">x</Data>`), `T json {"@id":"7","#text":"x"}`},
		{"namespace declaration", one(`<Data xmlns="" xmlns:i="urn:i" xml:space="preserve">x</Data>`), `T x`},
		{"empty", one(`<Data></Data>`), `T `},
		{"white space", one("<Data>\n</Data>"), `T `},
		{"missing", one(``), `T `},
		{"metadata", one(`<Data>x</Data><Metadata><m/></Metadata>`), `T json x meta {"m":""}`},
		{"names are free", "<a><b><eventid> $ID </eventid><EVENTTYPE>T</EVENTTYPE><dATA>x</dATA></b><Any><EventId>$OTHER</EventId><EventType>U</EventType></Any></a>",
			`T x|` + otherID + ` U `},
		{"prefixes", `<e:Events xmlns:e="urn:e"><e:Event><e:EventId>$ID</e:EventId><e:EventType>T</e:EventType></e:Event></e:Events>`, `T `},
		{"unknown members", one(`<x><EventId>5</EventId></x>`), `T `},
		{"last duplicate wins", one(`<EventType>U</EventType><Data>1</Data><data>2</data>`), `U 2`},
		{"declaration", `<?xml version="1.0" encoding="utf-8"?>` + "\n" + one(``), `T `},

		{"no id", "<a><b><EventType>T</EventType></b></a>", emptyID},
		{"empty id", "<a><b><EventId/><EventType>T</EventType></b></a>", emptyID},
		{"zero id", "<a><b><EventId>$ZERO</EventId><EventType>T</EventType></b></a>", emptyID},
		{"empty event", "<a><b/></a>", emptyID},
		{"no type", "<a><b><EventId>$ID</EventId></b></a>", emptyType},
		{"empty type", "<a><b><EventId>$ID</EventId><EventType></EventType></b></a>", emptyType},
		{"nothing", "", invalid},
		{"no events", "<Events/>", invalid},
		{"text alone", "<Events>x</Events>", invalid},
		{"not closed", "<Events><Event>", invalid},
		{"bad id", "<a><b><EventId>12</EventId><EventType>T</EventType></b></a>", invalid},
		{"elements in the id", "<a><b><EventId><x/></EventId><EventType>T</EventType></b></a>", invalid},
		{"elements in the type", "<a><b><EventId>$ID</EventId><EventType><x/></EventType></b></a>", invalid},
		{"bad id before missing id", "<a><b/><b><EventId>12</EventId></b></a>", invalid},
		{"document type", `<!DOCTYPE a><a><b/></a>`, invalid},
		{"json", `[{}]`, invalid},
	})
}

func TestDecodeXMLBatchSize(t *testing.T) {
	body := "<a><b><EventId>" + testID + "</EventId><EventType>T</EventType><Data>" + strings.Repeat("d", event.MaxEventBytes+1) + "</Data></b></a>"
	if _, err := decodeXMLBatch([]byte(body)); !errors.Is(err, event.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}
