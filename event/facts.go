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
		return badRequest("a tag is empty")
	case len(tag) > MaxLabelSize:
		return badRequest("a tag has %d bytes, at most %d are possible", len(tag), MaxLabelSize)
	case !utf8.ValidString(tag):
		return badRequest("a tag is not UTF-8")
	case strings.Contains(tag, ","):
		return badRequest("the tag %q has a comma", tag)
	case strings.ContainsFunc(tag, unicode.IsControl):
		return badRequest("the tag %q has a control character", tag)
	case strings.TrimSpace(tag) != tag:
		return badRequest("the tag %q begins or ends with white space", tag)
	}
	return nil
}

// BadRequest says what is wrong with a request, or a part of one, whatever is stored. The text is
// for the caller that asked for it.
type BadRequest struct{ Text string }

func (e *BadRequest) Error() string { return e.Text }

func badRequest(format string, args ...any) error {
	return &BadRequest{fmt.Sprintf(format, args...)}
}
