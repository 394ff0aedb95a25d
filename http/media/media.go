// Package media has the media types of requests and answers, and chooses among them.
package media

import "strings"

// Form is what a media type means to us. Types that differ in name only, such as
// the two of XML, are forms of their own because the answer names one.
type Form uint8

const (
	formNone Form = iota
	FormDescription
	FormAtomXML
	FormAtomJSON
	FormTextXML
	FormAppXML
	FormJSON
	FormEventXML
	FormEventJSON
	FormEventsXML
	FormEventsJSON
	FormRaw
	FormHTML
	FormText
	formCompetingXML
	formCompetingJSON
	formJavaScript
	FormManyJSON
	FormLines
)

// IsJSON reports whether a document in this form is JSON.
func (f Form) IsJSON() bool {
	switch f {
	case FormDescription, FormAtomJSON, FormJSON, FormEventJSON, FormEventsJSON, formCompetingJSON:
		return true
	}
	return false
}

// Type is a name of the wire. Its contentType is assigned to headers as it
// is and never changed.
type Type struct {
	Typ, Sub    string
	Form        Form
	kurrent     bool
	ContentType []string
	// etag is the part of ETags that tells types apart. Part of the wire: the same
	// on all nodes and after a restart.
	ETag string
}

// The media types that requests may name, in responses or in Accept.
var (
	Description = newType("application", "vnd.eventstore.streamdesc+json", FormDescription, "1146063451")
	AtomXML     = newType("application", "atom+xml", FormAtomXML, "-1296467268")
	AtomJSON    = newType("application", "vnd.eventstore.atom+json", FormAtomJSON, "-1955838367")
	TextXML     = newType("text", "xml", FormTextXML, "-1463912771")
	AppXML      = newType("application", "xml", FormAppXML, "1085137194")
	JSON        = newType("application", "json", FormJSON, "248368668")
	EventXML    = newType("application", "vnd.eventstore.event+xml", FormEventXML, "-611205273")
	EventJSON   = newType("application", "vnd.eventstore.event+json", FormEventJSON, "1714950402")
	EventsXML   = newType("application", "vnd.eventstore.events+xml", FormEventsXML, "-48206315")
	EventsJSON  = newType("application", "vnd.eventstore.events+json", FormEventsJSON, "907337815")
	Raw         = newType("application", "octet-stream", FormRaw, "-1802716524")
	HTML        = newType("text", "html", FormHTML, "365104293")
	Text        = newType("text", "plain", FormText, "1529830876")
	// Feeds of messages that several consumers compete for.
	CompetingXML  = newType("application", "vnd.eventstore.competingatom+xml", formCompetingXML, "-984162351")
	CompetingJSON = newType("application", "vnd.eventstore.competingatom+json", formCompetingJSON, "1623470918")

	// A write to several streams.
	manyJSON = newType("application", "vnd.annals.append+json", FormManyJSON, "0")

	// A JSON value on each line.
	Lines = newType("application", "x-ndjson", FormLines, "1")

	// Sent, and never asked for.
	JavaScript = newType("application", "javascript", formJavaScript, "0")

	kurrentDescription   = aliasOf(Description)
	kurrentAtomJSON      = aliasOf(AtomJSON)
	kurrentEventJSON     = aliasOf(EventJSON)
	kurrentEventsJSON    = aliasOf(EventsJSON)
	kurrentCompetingJSON = aliasOf(CompetingJSON)
	kurrentEventXML      = aliasOf(EventXML)
	kurrentEventsXML     = aliasOf(EventsXML)
	kurrentCompetingXML  = aliasOf(CompetingXML)
)

var allTypes = []*Type{
	JSON, AtomJSON, AtomXML, EventsJSON, EventJSON, TextXML, AppXML,
	Raw, HTML, Text, Description, EventXML, EventsXML, CompetingJSON, CompetingXML, manyJSON, Lines,
	kurrentAtomJSON, kurrentEventsJSON, kurrentEventJSON, kurrentDescription,
	kurrentCompetingJSON, kurrentEventXML, kurrentEventsXML, kurrentCompetingXML,
}

func newType(typ, sub string, f Form, etag string) *Type {
	name := typ + "/" + sub
	if f != FormRaw {
		name += "; charset=utf-8"
	}
	return &Type{Typ: typ, Sub: sub, Form: f, ETag: etag, ContentType: []string{name}}
}

// aliasOf gives a type the name that later clients use for it.
func aliasOf(t *Type) *Type {
	a := newType(t.Typ, strings.Replace(t.Sub, "eventstore", "kurrent", 1), t.Form, t.ETag)
	a.kurrent = true
	return a
}

// typeNamed finds a media type by its name in any case.
func typeNamed(typ, sub string) *Type {
	for _, t := range allTypes {
		if len(sub) == len(t.Sub) && len(typ) == len(t.Typ) && strings.EqualFold(sub, t.Sub) && strings.EqualFold(typ, t.Typ) {
			return t
		}
	}
	return nil
}

// Offer lists the types of a resource's answers, in the order that ranges choose from, and the type
// for requests that do not care.
type Offer struct {
	order    []*Type
	fallback *Type
	forms    uint32 // the same as a set
}

// NewOffer returns an offer of types in their order.
func NewOffer(fallback *Type, order ...*Type) *Offer {
	o := &Offer{order: order, fallback: fallback}
	for _, t := range order {
		o.forms |= 1 << t.Form
	}
	return o
}

// Has reports whether a type is offered, by any of its names.
func (o *Offer) Has(t *Type) bool { return o.forms&(1<<t.Form) != 0 }

// withType returns the first offered type whose top level type is typ.
func (o *Offer) withType(typ string) *Type {
	for _, t := range o.order {
		if strings.EqualFold(typ, t.Typ) {
			return t
		}
	}
	return nil
}

// OfBody reads a Content-Type. It returns nil when the type is none of forms
// or its text is not UTF-8.
func OfBody(value string, forms uint32) *Type {
	switch value { // What nearly all clients send.
	case "application/json":
		return within(JSON, forms)
	case "application/vnd.eventstore.events+json":
		return within(EventsJSON, forms)
	case "application/octet-stream":
		return within(Raw, forms)
	}
	name, params, _ := strings.Cut(value, ";")
	typ, sub, ok := strings.Cut(strings.TrimSpace(name), "/")
	if !ok {
		return nil
	}
	t := typeNamed(typ, sub)
	if t == nil {
		return nil
	}
	for param := range strings.SplitSeq(params, ";") {
		key, val, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(key), "charset") {
			continue
		}
		val = strings.Trim(strings.TrimSpace(val), `"'`)
		if !strings.EqualFold(val, "utf-8") && !strings.EqualFold(val, "utf8") {
			return nil
		}
	}
	return within(t, forms)
}

func within(t *Type, forms uint32) *Type {
	if forms&(1<<t.Form) == 0 {
		return nil
	}
	return t
}

// IsBatch reports whether a body of the form holds events with their ids and
// types, and not the data of one event.
func (f Form) IsBatch() bool {
	switch f {
	case FormEventsJSON, FormEventJSON, FormEventsXML, FormEventXML:
		return true
	}
	return false
}

// FeedInstead is the type of a feed where the description document does not exist.
func (t *Type) FeedInstead() *Type {
	if t.kurrent {
		return kurrentAtomJSON
	}
	return AtomJSON
}
