package bench

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
)

// A feed page is not decoded but searched. That is sound because a quotation mark within a JSON
// string is always escaped: text of the form "name": cannot come out of a
// name, a type or the data of an event, which stand in the feed as strings.

var (
	entryMark    = []byte(`"summary":`)    // every entry has one, the feed itself has none
	retriesMark  = []byte(`"retryCount":`) // likewise in a feed of messages
	relationMark = []byte(`"relation"`)
	uriMark      = []byte(`"uri"`)
	headMark     = []byte(`"headOfStream"`)
)

// countEntries returns how many entries a feed page has.
func countEntries(page []byte) int {
	return countMarks(page, entryMark, func([]byte) bool { return true })
}

// countFirst returns how many entries of a feed of messages are handed out for the first time.
func countFirst(page []byte) int {
	return countMarks(page, retriesMark, func(value []byte) bool {
		return bytes.HasPrefix(bytes.TrimLeft(value, " \t\r\n"), []byte("0"))
	})
}

// countMarks counts the places of a mark whose value counts. Pages of a thousand events are counted
// between one request and the next: looking for the end of the mark alone takes half the time of
// bytes.Count, because a letter is rarer in a page than the quotation mark that a mark begins
// with.
func countMarks(page, mark []byte, counts func(value []byte) bool) (n int) {
	end := mark[len(mark)-len(`y":`):]
	for at := 0; ; {
		i := bytes.Index(page[at:], end)
		if i < 0 {
			return n
		}
		at += i + len(end)
		if bytes.HasSuffix(page[:at], mark) && counts(page[at:]) {
			n++
		}
	}
}

// findMember returns the text after `"name" :` from an offset on, and the offset after the name;
// nil when there is no such member.
func findMember(page, name []byte, from int) (value []byte, next int) {
	for {
		i := bytes.Index(page[from:], name)
		if i < 0 {
			return nil, len(page)
		}
		from += i + len(name)
		rest := bytes.TrimLeft(page[from:], " \t\r\n")
		if len(rest) > 0 && rest[0] == ':' {
			return bytes.TrimLeft(rest[1:], " \t\r\n"), from
		}
	}
}

// relatedLink returns the path and query of the feed's link of a relation, "" when it has none.
func relatedLink(page []byte, relation string) string {
	quoted := `"` + relation + `"`
	at := 0
	for {
		value, next := findMember(page, relationMark, at)
		if value == nil {
			return ""
		}
		at = next
		if !bytes.HasPrefix(value, []byte(quoted)) {
			continue
		}
		begin := bytes.LastIndexByte(page[:next], '{')
		length := bytes.IndexByte(page[next:], '}')
		if begin < 0 || length < 0 {
			return ""
		}
		uri, _ := findMember(page[begin:next+length+1], uriMark, 0)
		return pathOf(uri)
	}
}

// pathOf reads the JSON string at the beginning of the text and returns path and query of the URI
// it holds.
func pathOf(text []byte) string {
	if len(text) == 0 || text[0] != '"' {
		return ""
	}
	end := bytes.IndexByte(text[1:], '"') + 1
	if end == 0 {
		return ""
	}
	uri := string(text[1:end])
	if strings.IndexByte(uri, '\\') >= 0 { // The string may be longer than that.
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&uri); err != nil {
			return ""
		}
	}
	u, err := url.Parse(uri)
	if err != nil {
		return ""
	}
	return u.RequestURI()
}

// atHead reports whether the page says that it reaches the end of its stream.
func atHead(page []byte) bool {
	value, _ := findMember(page, headMark, 0)
	return bytes.HasPrefix(value, []byte("true"))
}
