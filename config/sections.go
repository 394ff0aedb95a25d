package config

import (
	"errors"
	"strings"
)

// sectionMark separates a section from its members in a name: AutoScavenge:Enabled. A variable
// has two underscores there.
const sectionMark = ":"

// wrappers are sections whose members are options and sections as at the top of the file.
var wrappers = map[string]bool{"kurrentdb": true, "eventstore": true}

// sections are those of EventStoreDB 24 and KurrentDB 25 that have no effect here, by folded
// name, each with what to use instead.
var sections = map[string]string{
	"archive":           "",
	"autoscavenge":      "see ScavengeSchedule",
	"connectors":        "see live tails and subscriptions",
	"encryptionatrest":  "",
	"kestrel":           "",
	"ldapsauth":         "",
	"licensing":         "no licence is needed",
	"logging":           "see LogLevel",
	"logs":              "",
	"metrics":           "all metrics are at /metrics",
	"oauth":             "",
	"otlpexporter":      "metrics are at /metrics",
	"plugins":           "",
	"schemaregistry":    "",
	"secondaryindexing": "",
	"serilog":           "see LogLevel",
	"tcpplugin":         "the TCP client protocol is not offered",
	"tcpunittestplugin": "",
	"usercertificates":  "users have passwords",
}

// unwrapped takes the sections away that only wrap others. Variables have two underscores between
// the parts of a name, and may have one in front.
func unwrapped(name string) string {
	name = strings.TrimLeft(strings.ReplaceAll(name, "__", sectionMark), "_"+sectionMark)
	for {
		top, rest, ok := strings.Cut(name, sectionMark)
		if !ok || !wrappers[fold(top)] {
			return name
		}
		name = rest
	}
}

// takeSection passes a member of a known section over, and says so once for each section. It
// returns false when a name is not in a section that is known.
func (l *loader) takeSection(s setting) bool {
	top, member, ok := strings.Cut(s.name, sectionMark)
	hint, known := sections[fold(top)]
	if !ok || !known {
		return false
	}
	on, err := parseBool(s.value)
	if fold(top) == "encryptionatrest" && fold(member) == "enabled" && err == nil && on {
		l.problem(errors.New(noEncryption + ": " + s.name + " (" + s.at + ") must be false"))
		return true
	}
	for _, before := range l.passed {
		if strings.HasPrefix(before, top+" (") {
			return true
		}
	}
	if hint != "" {
		s.at += "; " + hint
	}
	l.passOver(top, s.at)
	return true
}
