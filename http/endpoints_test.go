package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/annalsdb/annals/access"
)

// String says who meets the requirement.
func (m requirement) String() string {
	switch m.rule {
	case byAnyone:
		return "everyone; credentials are not looked at"
	case byLevel:
		return levelText(m.level)
	case byLevelOrSelf:
		return levelText(m.level) + ", or the user itself"
	case bySelf:
		return "the user itself alone"
	case byStream:
		return "the stream's " + m.right.String() + " right"
	case byReader:
		return levelText(m.level) + " with the stream's " + m.right.String() + " right"
	}
	return "nobody"
}

func levelText(l access.Level) string {
	switch l {
	case access.Anon:
		return "everyone"
	case access.Auth:
		return "any user"
	case access.Ops:
		return "operators"
	case access.Admin:
		return "administrators"
	}
	return l.String()
}

// note names the options each of which lets in callers without credentials.
func (m requirement) note() string {
	var options []string
	if m.rule == byStream {
		options = append(options, "AllowAnonymousStreamAccess")
	}
	if m.opened&openEndpoints != 0 {
		options = append(options, "AllowAnonymousEndpointAccess")
	}
	if m.opened&openGossip != 0 {
		options = append(options, "OverrideAnonymousEndpointAccessForGossip")
	}
	return strings.Join(options, ", ")
}

// Endpoint is one operation of the interface and who may do it.
type Endpoint struct {
	Method string
	Path   string // parts in braces stand for anything, one part of a path each
	Who    string // in words
	Note   string // the options each of which lets in callers without credentials
}

// Endpoints returns what the server serves, by path, each operation with what is
// checked before it is done. OPTIONS is answered on all of them, and HEAD as GET is.
func (s *Server) Endpoints() []Endpoint {
	var list []Endpoint
	for i := range s.table {
		row := &s.table[i]
		for j := range row.operations {
			op := &row.operations[j]
			list = append(list, Endpoint{op.method, strings.Replace(row.path, restMark, "", 1), op.may.String(), op.may.note()})
		}
	}
	slices.SortStableFunc(list, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(methodOrder(a.Method), methodOrder(b.Method)))
	})
	return list
}

// methodOrder makes reading come before writing.
func methodOrder(method string) int {
	return slices.Index([]string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete}, method)
}
