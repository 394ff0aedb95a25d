package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/request"
)

// whoMay says who meets the requirement.
func whoMay(m *request.Requirement) string {
	switch m.Rule {
	case request.ByAnyone:
		return "everyone; credentials are not looked at"
	case request.ByLevel:
		return levelText(m.Level)
	case request.ByLevelOrSelf:
		return levelText(m.Level) + ", or the user itself"
	case request.BySelf:
		return "the user itself alone"
	case request.ByStream:
		return "the stream's " + m.Right.String() + " right"
	case request.ByReader:
		return levelText(m.Level) + " with the stream's " + m.Right.String() + " right"
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

// opened names the options each of which lets in callers without credentials.
func opened(m *request.Requirement) string {
	var options []string
	if m.Rule == request.ByStream {
		options = append(options, "AllowAnonymousStreamAccess")
	}
	if m.Opened&api.OpenEndpoints != 0 {
		options = append(options, "AllowAnonymousEndpointAccess")
	}
	if m.Opened&api.OpenGossip != 0 {
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
		for j := range row.Operations {
			op := &row.Operations[j]
			list = append(list, Endpoint{op.Method, strings.Replace(row.path, restMark, "", 1), whoMay(&op.May), opened(&op.May)})
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
