package standard

import (
	"strings"
	"unicode/utf8"

	"github.com/annalsdb/annals/event"
)

// categorizer finds the category in the name of a stream.
type categorizer struct {
	separator string
	first     bool // cut at the first separator, else at the last
}

const (
	badCategorizer = "Cannot initialize categorization projection handler.  "
	configuration  = "Configuration format is: \r\nfirst|last\r\nseparator char"
)

// parseCategorizer reads a configuration: "first" or "last" and, on a line of its
// own, the separator. A separator alone means "last".
func parseCategorizer(source string) (categorizer, error) {
	if isCharacter(source) {
		return categorizer{separator: source}, nil
	}
	text := strings.TrimRight(source, "\r\n")
	if strings.TrimSpace(text) == "" {
		return categorizer{}, fault("%sOne symbol separator or configuration must be supplied in the source.  %s", badCategorizer, configuration)
	}
	if one := strings.TrimSpace(text); isCharacter(one) {
		return categorizer{separator: one}, nil
	}
	lines := strings.Split(text, "\n")
	if len(lines) != 2 {
		return categorizer{}, fault("%sInvalid configuration  %s", badCategorizer, configuration)
	}
	direction := strings.ToLower(strings.TrimSpace(lines[0]))
	if direction != "first" && direction != "last" {
		return categorizer{}, fault("%sInvalid direction specifier.  Expected 'first' or 'last'. %s", badCategorizer, configuration)
	}
	if !isCharacter(lines[1]) {
		return categorizer{}, fault("%sSingle separator expected. %s", badCategorizer, configuration)
	}
	return categorizer{separator: lines[1], first: direction == "first"}, nil
}

func isCharacter(s string) bool {
	return s != "" && s != "\r" && s != "\n" && utf8.RuneCountInString(s) == 1
}

// of returns the category of a stream. System streams have none, nor have those
// without separator or that begin with it.
func (c categorizer) of(stream string) (category string, ok bool) {
	if event.IsSystemStream(stream) || strings.HasPrefix(stream, c.separator) {
		return "", false
	}
	at := -1
	if c.first {
		at = strings.Index(stream, c.separator)
	} else {
		at = strings.LastIndex(stream, c.separator)
	}
	if at <= 0 {
		return "", false
	}
	return stream[:at], true
}
