package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/internal/jsontext"
)

// compatibleVersion is the release of the reference whose clients and web
// interface work against us; they read it to know what they can ask for.
const compatibleVersion = "23.10.0.0"

// SubsystemProjections is what the projections are called among the subsystems.
const SubsystemProjections = "Projections"

const pingText = "Ping request successfully handled"

// servePing answers that the node is there.
func servePing(x *exchange) error {
	b := x.out[:0]
	switch x.media.form {
	case formTextXML, formAppXML:
		b = append(b, xmlProlog+"<TextMessage><Text>"+pingText+"</Text></TextMessage>"...)
	case formText:
		b = append(b, "Text: "+pingText...)
	default:
		b = append(b, "{\n  \"text\": \""+pingText+"\"\n}"...)
	}
	x.out = b
	x.ok()
	return nil
}

// nodeInfo answers what the node is and can do. It is JSON, whichever types are accepted.
func nodeInfo(x *exchange) error {
	authentication, userManagement := "internal", "true"
	if x.s.opts.Insecure {
		authentication, userManagement = "insecure", "false"
	}
	b := append(x.out[:0], "{\n  \"esVersion\": \""+compatibleVersion+"\",\n  \"version\": "...)
	b = jsontext.AppendString(b, x.s.opts.Version)
	b = append(b, ",\n  \"state\": "...)
	state := x.s.cluster.Role()
	if m := x.s.opts.Membership; m != nil {
		state = strings.ToLower(string(m.State()))
	}
	b = jsontext.AppendString(b, state)
	b = append(b, ",\n  \"projectionsMode\": "...)
	b = jsontext.AppendString(b, cmp.Or(x.s.opts.ProjectionsMode, "None"))
	b = append(b, ",\n  \"features\": {\n    \"projections\": "...)
	b = strconv.AppendBool(b, slices.Contains(x.s.subsystems(), SubsystemProjections))
	b = append(b, ",\n    \"userManagement\": "...)
	b = append(b, userManagement...)
	b = append(b, ",\n    \"atomPub\": "...)
	b = strconv.AppendBool(b, !x.s.opts.DisableAtomPub)
	b = append(b, "\n  },\n  \"authentication\": {\n    \"type\": \""...)
	b = append(b, authentication...)
	x.out = append(b, "\",\n    \"properties\": null\n  }\n}"...)
	x.media = typeJSON
	x.ok()
	return nil
}

// healthLive tells whether the node serves requests.
func healthLive(x *exchange) error {
	if x.s.drained.Load() || !x.s.cluster.Ready() {
		return problemNotReady
	}
	x.send(http.StatusNoContent, nil)
	return nil
}

// webInterface sends a browser to the web interface.
func webInterface(x *exchange) error {
	b := append(x.scratch[:0], x.origin()...)
	b = append(b, "/web/index.html"...)
	x.scratch = b
	x.w.Header()[keyLocation] = []string{string(b)}
	x.text(http.StatusFound, "Moved")
	return nil
}
