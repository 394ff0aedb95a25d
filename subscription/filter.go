package subscription

import (
	"fmt"
	"slices"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/match"
)

// storedFilter is a filter as it is stored. Other versions read and write it: do not change.
type storedFilter struct {
	Context     string `json:"Context"`
	Type        string `json:"Type"`
	Data        string `json:"Data"` // an expression, or prefixes with commas between them
	IsAllStream bool   `json:"IsAllStream"`

	// Prefixes are ours, where one of them has a comma itself; other versions pass them over.
	Prefixes []string `json:"prefixes,omitempty"`
}

const (
	filterByStream = "streamid"
	filterByType   = "eventtype"
	filterRegex    = "regex"
	filterPrefix   = "prefix"
)

// index returns the query of the index that a group reads: that of the name of its stream, or that
// of the one prefix of a filter of $all; nil: it reads none. A name that begins as that of an index
// and is not one is a *SettingsError.
func (k Key) index(f *Filter) (*event.Query, error) {
	name := k.Stream
	if k.Stream == event.AllStream && f != nil && f.OfStream && f.Regex == "" {
		for _, prefix := range f.Prefixes {
			if name = prefix; event.IsIndex(name) && len(f.Prefixes) > 1 {
				return nil, &SettingsError{Text: "Index reads take one index name and no other prefix."}
			}
		}
	}
	if !event.IsIndex(name) {
		return nil, nil
	}
	q, ok := label.IndexQuery(name)
	if !ok {
		return nil, &SettingsError{Text: fmt.Sprintf("Index '%s' not found.", name)}
	}
	return q, nil
}

// compile returns the compiled filter, nil for no filter.
func (f *Filter) compile() (names *match.Names, err error) {
	switch {
	case f == nil:
		return nil, nil
	case f.Regex != "":
		names, err = match.Expression(f.Regex)
	default:
		names, err = match.Prefixes(f.Prefixes)
	}
	if err != nil {
		return nil, &SettingsError{Text: fmt.Sprintf("Invalid filter: %v.", err)}
	}
	return names, nil
}

// plain returns a copy of the filter without the parts that have no effect.
func (f *Filter) plain() *Filter {
	if f == nil {
		return nil
	}
	p := &Filter{OfStream: f.OfStream, Regex: f.Regex}
	if f.Regex == "" {
		p.Prefixes = slices.DeleteFunc(slices.Clone(f.Prefixes), func(prefix string) bool { return prefix == "" })
	}
	return p
}

// stored returns a plain filter as it is stored.
func (f *Filter) stored() *storedFilter {
	if f == nil {
		return nil
	}
	s := &storedFilter{Context: filterByType, Type: filterRegex, Data: f.Regex, IsAllStream: true}
	if f.OfStream {
		s.Context = filterByStream
	}
	if f.Regex == "" {
		s.Type, s.Data = filterPrefix, strings.Join(f.Prefixes, ",")
		if strings.Count(s.Data, ",") >= len(f.Prefixes) {
			s.Prefixes = f.Prefixes
		}
	}
	return s
}

// filter reads a filter that was stored.
func (s *storedFilter) filter() (*Filter, error) {
	if s == nil {
		return nil, nil
	}
	f := &Filter{OfStream: s.Context == filterByStream}
	switch {
	case s.Context != filterByStream && s.Context != filterByType:
		return nil, fmt.Errorf("the kind of name that the filter matches, %q, is unknown", s.Context)
	case s.Type == filterRegex:
		f.Regex = s.Data
	case s.Type != filterPrefix:
		return nil, fmt.Errorf("the filter's type %q is not known", s.Type)
	case len(s.Prefixes) > 0:
		f.Prefixes = s.Prefixes
	default:
		f.Prefixes = strings.Split(s.Data, ",")
	}
	return f.plain(), nil
}
