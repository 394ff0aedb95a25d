package activity

import (
	"net/url"
	"strings"

	"github.com/annalsdb/annals/admin/record"
)

// Names of the stream and of its events. Clients read them: do not change.
const (
	Stream        = "$operations"
	TypeOperation = "$operation"
)

// Operation is a request that asked for a change, and how it was answered. It is the
// data of an event as it is stored: do not change names or order.
type Operation struct {
	Who    string `json:"who"`  // login; empty without credentials, or with wrong ones
	From   string `json:"from"` // address of the client
	Node   string `json:"node"` // host:port of the node that answered; a Recorder sets it
	Method string `json:"method"`
	Path   string `json:"path"` // escaped as in the request
	Query  string `json:"query"`
	Status int    `json:"status"`
}

// data is what an event holds.
type data struct {
	Operation
	LeftOut int64 `json:"leftOut,omitempty"` // requests before this one that have no event
}

// maxField bounds the texts that a client chooses.
const maxField = 1024

// bounded returns the operation as it is kept: without secrets, and no text longer than
// maxField.
func (o Operation) bounded() Operation {
	o.Query = masked(o.Query)
	for _, field := range []*string{&o.Who, &o.From, &o.Method, &o.Path, &o.Query} {
		*field = clip(*field)
	}
	return o
}

// clip shortens a text at the border of a character, and says so.
func clip(text string) string {
	if cut := record.Clip(text, maxField); cut != text {
		return cut + "..."
	}
	return strings.Clone(text) // The rest of the request must not stay in memory.
}

// secrets are parts of names of parameters whose values must not be recorded. No request of ours
// has such a parameter, but a client may add one.
var secrets = []string{"pass", "pwd", "secret", "token", "auth", "credential", "signature", "key"}

// mask replaces a secret value.
const mask = "***"

// masked returns a query without the values of parameters that may be secrets.
func masked(query string) string {
	if query == "" {
		return ""
	}
	parameters := strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' })
	for i, p := range parameters {
		name, _, valued := strings.Cut(p, "=")
		if valued && isSecret(name) {
			parameters[i] = name + "=" + mask
		}
	}
	return strings.Join(parameters, "&")
}

func isSecret(name string) bool {
	plain, err := url.QueryUnescape(name)
	if err != nil {
		return true // It is not known what it is.
	}
	plain = strings.ToLower(plain)
	for _, s := range secrets {
		if strings.Contains(plain, s) {
			return true
		}
	}
	return false
}
