package httpapi

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
)

// Endpoint is one operation of the interface and who may do it.
type Endpoint struct {
	Method string
	Path   string // parts in braces stand for anything, one part of a path each
	Who    string // in words
	Note   string // the options each of which lets in callers without credentials
}

// streamPatterns are the forms of path under /streams/.
var streamPatterns = [kinds][]string{
	kindStream:           {"{stream}"},
	kindStreamSlash:      {"{stream}/"},
	kindEvent:            {"{stream}/{number}"},
	kindBackward:         {"{stream}/{number}/{count}", "{stream}/{number}/backward/{count}", scavengesStream + "/{id}/{number}/{count}"},
	kindForward:          {"{stream}/{number}/forward/{count}"},
	kindIncoming:         {"{stream}/incoming/{id}"},
	kindMetadata:         {"{stream}/metadata"},
	kindMetadataSlash:    {"{stream}/metadata/"},
	kindMetadataEvent:    {"{stream}/metadata/{number}"},
	kindMetaBackward:     {"{stream}/metadata/{number}/{count}", "{stream}/metadata/{number}/backward/{count}"},
	kindMetaForward:      {"{stream}/metadata/{number}/forward/{count}"},
	kindAll:              {"$all"},
	kindAllBackward:      {"$all/{position}/{count}", "$all/{position}/backward/{count}"},
	kindAllForward:       {"$all/{position}/forward/{count}"},
	kindFiltered:         {"$all/filtered"},
	kindFilteredBackward: {"$all/filtered/{position}/{count}", "$all/filtered/{position}/backward/{count}"},
	kindFilteredForward:  {"$all/filtered/{position}/forward/{count}"},
}

// routerPlaceholder is how the router spells one.
var routerPlaceholder = regexp.MustCompile(`[:*](\w+)$`)

// Endpoints returns what the server serves, by path, each operation with what is
// checked before it is done. OPTIONS is answered on all of them, and HEAD as GET is.
func (s *Server) Endpoints() []Endpoint {
	var list []Endpoint
	add := func(path string, res *resource) {
		for i := range res.operations {
			op := &res.operations[i]
			list = append(list, Endpoint{op.method, path, op.may.String(), op.may.note()})
		}
	}
	for path, res := range s.fixedResources() {
		add(routerPlaceholder.ReplaceAllString(path, "{$1}"), res)
	}
	if s.servesStreams() {
		for k, patterns := range streamPatterns {
			for _, p := range patterns {
				add(streamsPrefix+p, &streamResources[k])
			}
		}
	}
	if s.servesUsers() {
		for _, u := range userPatterns {
			add(u.path, u.res)
		}
	}
	if s.servesSubscriptions() {
		for _, p := range subscriptionPatterns {
			add(p.path, p.res)
		}
	}
	if s.servesProjections() {
		for _, p := range projectionPatterns {
			add(p.path, p.res)
		}
	}
	if s.servesScavenges() {
		for _, p := range scavengePatterns {
			add(p.path, p.res)
		}
	}
	if s.servesBackups() {
		add(backupSessionsPath+"/{id}", &backupSessionResource)
		add(backupSessionsPath+"/{id}/files/{name}", &backupFileResource)
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
