package config

import (
	"errors"
	"strings"
	"unicode"

	"github.com/annalsdb/annals/internal/spelling"
)

// EnvPrefix is what the environment variables with options begin with. See envPrefixes for the
// others.
const EnvPrefix = "STORE_"

// suggestionDistance is how many edits a misspelt name may be away from the suggested one.
const suggestionDistance = 5

// separators are what may stand between the words of a name.
var separators = strings.NewReplacer("-", "", "_", "")

// fold gives all spellings of one name the same form: case and separators do not count.
func fold(name string) string {
	return strings.ToLower(separators.Replace(name))
}

// FlagName spells an option for the command line: ClusterSize is cluster-size.
func FlagName(name string) string { return flagName(name) }

func flagName(name string) string { return strings.ToLower(separate(name, '-')) }

// envName spells an option for the environment: ClusterSize is STORE_CLUSTER_SIZE.
func envName(name string) string { return EnvPrefix + envWords(name) }

func envWords(name string) string { return strings.ToUpper(separate(name, '_')) }

// spelling is how an option is written in a source.
func (s source) spelling(name string) string {
	if s == sourceCommandLine {
		return "--" + flagName(name)
	}
	for _, p := range envPrefixes {
		if s == p.source {
			return p.prefix + envWords(name)
		}
	}
	return name
}

func separate(name string, with rune) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteRune(with)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// meant proposes the possible value that is nearest to a wrong one, if one is near.
func meant(wrong string, possible []string) string {
	best, distance := "", len(wrong)/2+1
	for _, p := range possible {
		if d := spelling.Distance(strings.ToLower(wrong), strings.ToLower(p), distance); d < distance {
			best, distance = p, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// nearest returns the option whose name, present or former, has the fewest edits
// to an unknown one, or nothing if all are too far away or share no letter with it. Of equally near
// ones the first of the table wins.
func nearest(unknown string, table []option) string {
	unknown = fold(unknown)
	best, distance := "", min(suggestionDistance+1, len(unknown))
	for _, o := range table {
		for _, name := range append([]string{o.name}, o.synonyms...) {
			if d := spelling.Distance(unknown, fold(name), distance); d < distance {
				best, distance = o.name, d
			}
		}
	}
	return best
}

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
