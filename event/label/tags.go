package label

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
)

// maxTexts bounds what is looked at for tags, the same ones given again included.
const maxTexts = 16 * event.MaxTags

var (
	tagsName        = []byte(event.TagsMember)
	correlationName = []byte(event.CorrelationMember)
	// escapedASCII begins every escape that can stand for a letter of these names, or for $.
	escapedASCII = []byte(`\u00`)
)

// mayHave reports whether metadata may have one of the members. It costs nearly nothing where it
// has none.
func mayHave(metadata []byte) bool {
	if bytes.IndexByte(metadata, '$') >= 0 && (bytes.Contains(metadata, tagsName) || bytes.Contains(metadata, correlationName)) {
		return true
	}
	return bytes.Contains(metadata, escapedASCII)
}

type members struct{ tags, correlation member }

// membersOf returns the members of metadata; of several with one name the last. Text that is not a
// JSON object has none.
func membersOf(metadata []byte) members {
	var m members
	walk := jsontext.ObjectAt(metadata, jsontext.Space(metadata, 0))
	for walk.Next() {
		switch name := jsontext.Unquote(nil, walk.Name); {
		case bytes.Equal(name, tagsName):
			m.tags = member{walk.Value, walk.Kind}
		case bytes.Equal(name, correlationName):
			m.correlation = member{walk.Value, walk.Kind}
		}
	}
	if end, ok := walk.End(); !ok || jsontext.Space(metadata, end) != len(metadata) {
		return members{}
	}
	return m
}

// correlationID returns the text of a string or the digits of a number; "" for what is none.
func (m *members) correlationID() string {
	id := m.correlation.raw
	switch m.correlation.kind {
	case jsontext.String:
		id = jsontext.Unquote(nil, id)
	case jsontext.Number:
	default:
		return ""
	}
	if len(id) > event.MaxLabelSize {
		return ""
	}
	return text(id)
}

// appendTags appends the tags, each once. Null is as good as no member.
func (m *members) appendTags(to []string) ([]string, error) {
	raw := m.tags.raw
	switch m.tags.kind {
	case jsontext.Invalid, jsontext.Null:
		return to, nil
	case jsontext.String, jsontext.Array:
	default:
		return to, malformed("neither an array of texts nor a text")
	}
	if !utf8.Valid(raw) {
		return to, malformed("not UTF-8")
	}
	if m.tags.kind == jsontext.Array {
		return appendArray(to, raw)
	}
	all := text(jsontext.Unquote(nil, raw))
	if strings.TrimSpace(all) == "" {
		return to, nil
	}
	var err error
	texts := 0
	for part := range strings.SplitSeq(all, ",") {
		texts++
		if to, err = appendTag(to, strings.TrimSpace(part), texts); err != nil {
			return to, err
		}
	}
	return to, nil
}

func appendArray(to []string, raw []byte) ([]string, error) {
	var err error
	texts := 0
	for e := jsontext.ArrayAt(raw, 0); e.Next(); {
		texts++
		if e.Kind != jsontext.String {
			return to, malformed("element %d is not a text", texts-1)
		}
		if to, err = appendTag(to, text(jsontext.Unquote(nil, e.Value)), texts); err != nil {
			return to, err
		}
	}
	return to, nil
}

// appendTag appends the text that is the n-th one of the event.
func appendTag(to []string, tag string, n int) ([]string, error) {
	if n > maxTexts {
		return to, malformed("more than %d texts", maxTexts)
	}
	if slices.Contains(to, tag) {
		return to, nil
	}
	if err := event.CheckTag(tag); err != nil {
		return to, malformed("%v", err)
	}
	if len(to) == event.MaxTags {
		return to, malformed("more than %d tags", event.MaxTags)
	}
	return append(to, tag), nil
}

func malformed(format string, args ...any) error {
	return &event.BadRequest{Text: event.TagsMember + ": " + fmt.Sprintf(format, args...)}
}

// WithTags returns metadata with tags that were given next to it, as a JSON value: an array of
// texts. It returns a *event.BadRequest where they are malformed, and where the metadata is not a
// JSON object or has tags of its own. Metadata of no bytes count as {}.
func WithTags(metadata, tags []byte) ([]byte, error) {
	_, kind := jsontext.End(tags, 0)
	if kind == jsontext.Null {
		return metadata, nil
	}
	if kind != jsontext.Array {
		return nil, &event.BadRequest{Text: "tags: not an array of texts"}
	}
	given := members{tags: member{tags, kind}}
	if _, err := given.appendTags(nil); err != nil {
		return nil, err
	}
	if len(metadata) == 0 {
		metadata = []byte("{}")
	}
	if !jsontext.IsObject(metadata) {
		return nil, &event.BadRequest{Text: "tags: the metadata is not a JSON object"}
	}
	if m := membersOf(metadata); m.tags.kind != jsontext.Invalid {
		return nil, &event.BadRequest{Text: "tags: the metadata has " + event.TagsMember + " too"}
	}
	at := jsontext.Space(metadata, 0) + 1
	out := make([]byte, 0, len(metadata)+len(tags)+len(event.TagsMember)+4)
	out = append(out, metadata[:at]...)
	out = jsontext.AppendString(out, event.TagsMember)
	out = append(append(out, ':'), tags...)
	if metadata[jsontext.Space(metadata, at)] != '}' {
		out = append(out, ',')
	}
	return append(out, metadata[at:]...), nil
}
