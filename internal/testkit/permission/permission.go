// Package permission has the words of docs/permissions.md for who may do something.
package permission

import (
	"strings"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
)

var levels = map[access.Level]string{access.Anon: "everyone", access.Auth: "any user", access.Ops: "operators", access.Admin: "administrators"}

// Who says who meets a requirement.
func Who(m *api.Requirement) string {
	switch m.Rule {
	case api.ByAnyone:
		return "everyone; credentials are not looked at"
	case api.ByLevel:
		return levels[m.Level]
	case api.ByLevelOrSelf:
		return levels[m.Level] + ", or the user itself"
	case api.BySelf:
		return "the user itself alone"
	case api.ByStream:
		return "the stream's " + m.Right.String() + " right"
	case api.ByStreams:
		return "the write right of each stream written to, the read right of each that is only checked"
	case api.ByReader:
		return levels[m.Level] + " with the stream's " + m.Right.String() + " right"
	}
	return "nobody"
}

// Opened names the options each of which lets in callers without credentials.
func Opened(m *api.Requirement) string {
	var options []string
	if m.Rule == api.ByStream || m.Rule == api.ByStreams {
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
