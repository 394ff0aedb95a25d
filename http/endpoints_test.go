package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/annalsdb/annals/internal/testkit/permission"
)

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
			list = append(list, Endpoint{op.Method, strings.Replace(row.path, restMark, "", 1), permission.Who(&op.May), permission.Opened(&op.May)})
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
