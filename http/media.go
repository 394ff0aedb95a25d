package httpapi

import "strings"

// form is what a media type means to us. Types that differ in name only, such as
// the two of XML, are forms of their own because the answer names one.
type form uint8

const (
	formNone form = iota
	formDescription
	formAtomXML
	formAtomJSON
	formTextXML
	formAppXML
	formJSON
	formEventXML
	formEventJSON
	formEventsXML
	formEventsJSON
	formRaw
	formHTML
	formText
	formCompetingXML
	formCompetingJSON
	formJavaScript
)

// isJSON reports whether a document in this form is JSON.
func (f form) isJSON() bool {
	switch f {
	case formDescription, formAtomJSON, formJSON, formEventJSON, formEventsJSON, formCompetingJSON:
		return true
	}
	return false
}

// mediaType is a name of the wire. Its contentType is assigned to headers as it
// is and never changed.
type mediaType struct {
	typ, sub    string
	form        form
	kurrent     bool
	contentType []string
	// etag is the part of ETags that tells types apart. Part of the wire: the same
	// on all nodes and after a restart.
	etag string
}

// The media types that requests may name, in responses or in Accept.
var (
	typeDescription = newType("application", "vnd.eventstore.streamdesc+json", formDescription, "1146063451")
	typeAtomXML     = newType("application", "atom+xml", formAtomXML, "-1296467268")
	typeAtomJSON    = newType("application", "vnd.eventstore.atom+json", formAtomJSON, "-1955838367")
	typeTextXML     = newType("text", "xml", formTextXML, "-1463912771")
	typeAppXML      = newType("application", "xml", formAppXML, "1085137194")
	typeJSON        = newType("application", "json", formJSON, "248368668")
	typeEventXML    = newType("application", "vnd.eventstore.event+xml", formEventXML, "-611205273")
	typeEventJSON   = newType("application", "vnd.eventstore.event+json", formEventJSON, "1714950402")
	typeEventsXML   = newType("application", "vnd.eventstore.events+xml", formEventsXML, "-48206315")
	typeEventsJSON  = newType("application", "vnd.eventstore.events+json", formEventsJSON, "907337815")
	typeRaw         = newType("application", "octet-stream", formRaw, "-1802716524")
	typeHTML        = newType("text", "html", formHTML, "365104293")
	typeText        = newType("text", "plain", formText, "1529830876")
	// Feeds of messages that several consumers compete for.
	typeCompetingXML  = newType("application", "vnd.eventstore.competingatom+xml", formCompetingXML, "-984162351")
	typeCompetingJSON = newType("application", "vnd.eventstore.competingatom+json", formCompetingJSON, "1623470918")

	// Sent, and never asked for.
	typeJavaScript = newType("application", "javascript", formJavaScript, "0")

	kurrentDescription   = aliasOf(typeDescription)
	kurrentAtomJSON      = aliasOf(typeAtomJSON)
	kurrentEventJSON     = aliasOf(typeEventJSON)
	kurrentEventsJSON    = aliasOf(typeEventsJSON)
	kurrentCompetingJSON = aliasOf(typeCompetingJSON)
	kurrentEventXML      = aliasOf(typeEventXML)
	kurrentEventsXML     = aliasOf(typeEventsXML)
	kurrentCompetingXML  = aliasOf(typeCompetingXML)
)

var allTypes = []*mediaType{
	typeJSON, typeAtomJSON, typeAtomXML, typeEventsJSON, typeEventJSON, typeTextXML, typeAppXML,
	typeRaw, typeHTML, typeText, typeDescription, typeEventXML, typeEventsXML, typeCompetingJSON, typeCompetingXML,
	kurrentAtomJSON, kurrentEventsJSON, kurrentEventJSON, kurrentDescription,
	kurrentCompetingJSON, kurrentEventXML, kurrentEventsXML, kurrentCompetingXML,
}

func newType(typ, sub string, f form, etag string) *mediaType {
	name := typ + "/" + sub
	if f != formRaw {
		name += "; charset=utf-8"
	}
	return &mediaType{typ: typ, sub: sub, form: f, etag: etag, contentType: []string{name}}
}

// aliasOf gives a type the name that later clients use for it.
func aliasOf(t *mediaType) *mediaType {
	a := newType(t.typ, strings.Replace(t.sub, "eventstore", "kurrent", 1), t.form, t.etag)
	a.kurrent = true
	return a
}

// typeNamed finds a media type by its name in any case.
func typeNamed(typ, sub string) *mediaType {
	for _, t := range allTypes {
		if len(sub) == len(t.sub) && len(typ) == len(t.typ) && strings.EqualFold(sub, t.sub) && strings.EqualFold(typ, t.typ) {
			return t
		}
	}
	return nil
}

// offer lists the types of a resource's answers, in the order that ranges choose from, and the type
// for requests that do not care.
type offer struct {
	order    []*mediaType
	fallback *mediaType
	forms    uint32 // the same as a set
}

func newOffer(fallback *mediaType, order ...*mediaType) *offer {
	o := &offer{order: order, fallback: fallback}
	for _, t := range order {
		o.forms |= 1 << t.form
	}
	return o
}

func (o *offer) has(t *mediaType) bool { return o.forms&(1<<t.form) != 0 }

// withType returns the first offered type whose top level type is typ.
func (o *offer) withType(typ string) *mediaType {
	for _, t := range o.order {
		if strings.EqualFold(typ, t.typ) {
			return t
		}
	}
	return nil
}

// What the resources offer.
var (
	feedOffer = newOffer(typeAtomXML, typeDescription, typeAtomXML, typeAtomJSON, typeTextXML, typeAppXML, typeJSON,
		typeEventXML, typeEventJSON, typeEventsXML, typeEventsJSON, typeHTML)
	singleOffer = newOffer(typeAtomXML, typeAtomXML, typeAtomJSON, typeTextXML, typeAppXML, typeJSON,
		typeEventXML, typeEventJSON, typeRaw, typeHTML)
	changeOffer = newOffer(typeDescription, typeDescription, typeAtomXML, typeAtomJSON, typeTextXML, typeAppXML, typeJSON,
		typeEventXML, typeEventJSON, typeEventsXML, typeEventsJSON, typeRaw)
	nodeOffer   = newOffer(typeJSON, typeJSON, typeTextXML, typeAppXML, typeText)
	gossipOffer = newOffer(typeJSON, typeJSON, typeAppXML, typeTextXML, typeText)
	adminOffer  = newOffer(typeText, typeText, typeJSON, typeTextXML, typeAppXML)
	// There is no text of statistics.
	statsOffer = newOffer(typeJSON, typeJSON, typeTextXML, typeAppXML)
	jsonOffer  = newOffer(typeJSON, typeJSON)

	subscriptionsOffer = newOffer(typeJSON, typeJSON, typeTextXML)
	competingOffer     = newOffer(typeCompetingXML, typeCompetingXML, typeCompetingJSON)
)

// What bodies may be.
const (
	appendForms = 1<<formJSON | 1<<formTextXML | 1<<formAppXML | 1<<formRaw | 1<<formEventsJSON | 1<<formEventsXML |
		1<<formEventJSON | 1<<formEventXML | 1<<formAtomJSON | 1<<formAtomXML
	gossipForms   = 1<<formJSON | 1<<formTextXML | 1<<formAppXML
	settingsForms = 1<<formJSON | 1<<formTextXML
	incomingForms = 1<<formJSON | 1<<formTextXML | 1<<formAppXML | 1<<formRaw | 1<<formAtomJSON | 1<<formAtomXML
)

// requestType reads a Content-Type. It returns nil when the type is none of forms
// or its text is not UTF-8.
func requestType(value string, forms uint32) *mediaType {
	switch value { // What nearly all clients send.
	case "application/json":
		return within(typeJSON, forms)
	case "application/vnd.eventstore.events+json":
		return within(typeEventsJSON, forms)
	case "application/octet-stream":
		return within(typeRaw, forms)
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

func within(t *mediaType, forms uint32) *mediaType {
	if forms&(1<<t.form) == 0 {
		return nil
	}
	return t
}
