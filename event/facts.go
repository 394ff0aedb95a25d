package event

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// TagsMember is the member of an event's metadata that holds its tags.
const TagsMember = "$tags"

// Limits of what an event says of itself.
const (
	MaxTags      = 64  // of one event
	MaxLabelSize = 256 // bytes of a tag or a correlation id
)

// Facts are what an event says of itself, by which it is found. Package label reads them.
type Facts struct {
	Stream, Type string
	Correlation  string   // "": none
	Tags         []string // each once
}

// IsSystem reports whether the stream or the type begins with "$". Of such an event only the type
// counts: it has no category, no correlation and no tags.
func (f *Facts) IsSystem() bool { return IsSystemStream(f.Stream) || strings.HasPrefix(f.Type, "$") }

// CategoryOf returns the category of a stream: its name up to the first "-", or all of it.
func CategoryOf(stream string) string {
	category, _, _ := strings.Cut(stream, "-")
	return category
}

// CheckTag says what keeps a text from being a tag, nil when it is one.
func CheckTag(tag string) error {
	switch {
	case tag == "":
		return badWrite("a tag is empty")
	case len(tag) > MaxLabelSize:
		return badWrite("a tag has %d bytes, at most %d are possible", len(tag), MaxLabelSize)
	case !utf8.ValidString(tag):
		return badWrite("a tag is not UTF-8")
	case strings.Contains(tag, ","):
		return badWrite("the tag %q has a comma", tag)
	case strings.ContainsFunc(tag, unicode.IsControl):
		return badWrite("the tag %q has a control character", tag)
	case strings.TrimSpace(tag) != tag:
		return badWrite("the tag %q begins or ends with white space", tag)
	}
	return nil
}

// BadWrite says why a write, or a part of one, can never be done, whatever is stored. The text is
// for whoever asked for it.
type BadWrite struct{ Text string }

func (e *BadWrite) Error() string { return e.Text }

func badWrite(format string, args ...any) error {
	return &BadWrite{fmt.Sprintf(format, args...)}
}
