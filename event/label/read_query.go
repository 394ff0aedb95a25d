package label

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
)

var (
	queryMembers = []string{"items", "all"}
	itemMembers  = []string{"types", "tags", "categories", "streams", "correlation"}
)

// member is a member of an object as it is written. Its kind is Invalid when there is none.
type member struct {
	raw  []byte
	kind jsontext.Kind
}

// ReadQuery reads a query from a JSON object and checks it. It takes no members but those there
// are, by their exact names, and none of them empty. Its error is a *event.BadRequest.
func ReadQuery(data []byte) (q event.Query, err error) {
	if len(data) > event.MaxQueryBytes {
		return q, wrong("the query has %d bytes, at most %d are possible", len(data), event.MaxQueryBytes)
	}
	if !utf8.Valid(data) {
		return q, wrong("the query is not UTF-8")
	}
	var top [2]member
	if err := readMembers(data, queryMembers, top[:]); err != nil {
		return q, wrong("query%v", err)
	}
	items, all := top[0], top[1]
	switch all.kind {
	case jsontext.Invalid, jsontext.False:
	case jsontext.True:
		q.All = true
	default:
		return q, wrong("query.all: of another type")
	}
	if items.kind != jsontext.Invalid {
		if items.kind != jsontext.Array {
			return q, wrong("query.items: of another type")
		}
		n := 0
		for e := jsontext.ArrayAt(items.raw, 0); e.Next(); n++ {
			if n >= event.MaxQueryItems {
				continue
			}
			i, err := readItem(e.Value)
			if err != nil {
				return q, wrong("items[%d]%v", n, err)
			}
			q.Items = append(q.Items, i)
		}
		switch {
		case n == 0:
			return q, wrong("query.items: empty")
		case n > event.MaxQueryItems:
			return q, wrong("items: %d, at most %d are possible", n, event.MaxQueryItems)
		}
	}
	return q, q.Check()
}

func wrong(format string, args ...any) error {
	return &event.BadRequest{Text: fmt.Sprintf(format, args...)}
}

func readItem(data []byte) (i event.QueryItem, err error) {
	var v [5]member
	if err := readMembers(data, itemMembers, v[:]); err != nil {
		return i, err
	}
	for n, to := range [...]*[]string{&i.Types, &i.Tags, &i.Categories, &i.Streams} {
		if *to, err = v[n].texts(); err != nil {
			return i, fmt.Errorf(".%s: %w", itemMembers[n], err)
		}
	}
	if c := v[4]; c.kind != jsontext.Invalid {
		if c.kind != jsontext.String {
			return i, fmt.Errorf(".%s: of another type", itemMembers[4])
		}
		if i.Correlation = string(jsontext.Unquote(nil, c.raw)); i.Correlation == "" {
			return i, fmt.Errorf(".%s: empty", itemMembers[4])
		}
	}
	return i, nil
}

// readMembers finds the members of an object by their names. Of those of one name the last counts.
func readMembers(data []byte, names []string, to []member) error {
	unknown := ""
	m := jsontext.ObjectAt(data, jsontext.Space(data, 0))
	for m.Next() {
		name := string(jsontext.Unquote(nil, m.Name))
		if i := slices.Index(names, name); i >= 0 {
			to[i] = member{m.Value, m.Kind}
		} else if unknown == "" {
			unknown = fmt.Sprintf(": unknown member %q", name)
		}
	}
	if end, ok := m.End(); !ok || jsontext.Space(data, end) != len(data) {
		return errors.New(": not a JSON object")
	}
	if unknown != "" {
		return errors.New(unknown)
	}
	for i := range to {
		if to[i].kind == jsontext.Null {
			return fmt.Errorf(".%s: empty", names[i])
		}
	}
	return nil
}

// texts reads an array of texts.
func (m *member) texts() (all []string, err error) {
	if m.kind == jsontext.Invalid {
		return nil, nil
	}
	if m.kind != jsontext.Array {
		return nil, errors.New("of another type")
	}
	for e := jsontext.ArrayAt(m.raw, 0); e.Next(); {
		switch e.Kind {
		case jsontext.String:
			all = append(all, string(jsontext.Unquote(nil, e.Value)))
		case jsontext.Null:
			return nil, errors.New("not an array of texts")
		default:
			return nil, errors.New("of another type")
		}
	}
	if len(all) == 0 {
		return nil, errors.New("empty")
	}
	return all, nil
}
