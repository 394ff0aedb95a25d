package config

import (
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
