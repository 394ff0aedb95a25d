package xmljson

import (
	"bytes"
	"errors"
)

// Bounds of a document. What is parsed takes some ten times the memory of its markup, so
// a document of nothing but markup must be refused before it is parsed.
const (
	MaxElements   = 200_000 // with attributes counted as elements
	MaxAttributes = 1_000   // of one element
)

var errTooMany = errors.New("document has too many elements or attributes")

// checkSize refuses a document with too many elements or attributes. It looks for no other
// fault, and is done in one pass: comments, sections, instructions and quoted values are
// skipped as a whole.
func checkSize(body []byte) error {
	nodes := 0
	for rest := body; ; {
		at := bytes.IndexByte(rest, '<')
		if at < 0 {
			return nil
		}
		if rest = rest[at+1:]; len(rest) == 0 {
			return nil
		}
		end := ""
		switch {
		case bytes.HasPrefix(rest, []byte("!--")):
			end = "-->"
		case bytes.HasPrefix(rest, []byte("![CDATA[")):
			end = "]]>"
		case rest[0] == '?':
			end = "?>"
		}
		if end != "" {
			at := bytes.Index(rest, []byte(end))
			if at < 0 {
				return nil // The parser says so.
			}
			rest = rest[at+len(end):]
			continue
		}
		var attributes int
		attributes, rest = countAttributes(rest)
		if nodes += 1 + attributes; nodes > 2*MaxElements || attributes > MaxAttributes {
			return errTooMany
		}
	}
}

// countAttributes counts those of the tag that a text begins with, and returns the text after the
// tag. It stops counting beyond the bound.
func countAttributes(tag []byte) (n int, rest []byte) {
	for n <= MaxAttributes {
		at := bytes.IndexAny(tag, `"'>`)
		if at < 0 {
			return n, nil
		}
		if tag[at] == '>' {
			return n, tag[at+1:]
		}
		n++
		quote := tag[at]
		tag = tag[at+1:]
		end := bytes.IndexByte(tag, quote)
		if end < 0 {
			return n, nil
		}
		tag = tag[end+1:]
	}
	return n, tag
}
