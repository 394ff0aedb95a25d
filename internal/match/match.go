// Package match chooses names by what they begin with or by a regular expression.
//
// Clients write expressions in .NET's syntax, which has more than Go's: lookaheads above all.
// Those that Go's engine takes run in linear time; others run by backtracking, with a bound.
package match

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/dlclark/regexp2/v2"
)

// Timeout bounds one match of an expression that backtracks.
const Timeout = 100 * time.Millisecond

// MaxExpression bounds the bytes of an expression.
const MaxExpression = 64 << 10

var (
	// ErrTimeout says that an expression took too long for a name.
	ErrTimeout = errors.New("the regular expression took too long")
	// ErrNothing says that a list of prefixes has none that chooses.
	ErrNothing = errors.New("no prefix was given")
)

// Names chooses names. It may be used by many goroutines.
type Names struct {
	prefixes []string
	is       func(string) bool // instead of prefixes; nil: they decide, or slow
	slow     *regexp2.Regexp
}

// Prefixes chooses the names that begin with one of a list, by bytes. Empty ones are passed over.
func Prefixes(list []string) (*Names, error) {
	list = slices.DeleteFunc(slices.Clone(list), func(p string) bool { return p == "" })
	if len(list) == 0 {
		return nil, ErrNothing
	}
	return &Names{prefixes: list}, nil
}

// Expression chooses the names in which a regular expression matches anywhere.
func Expression(text string) (*Names, error) {
	if is := known[text]; is != nil {
		return &Names{is: is}, nil
	}
	if len(text) > MaxExpression {
		return nil, fmt.Errorf("the regular expression has %d bytes, at most %d are possible", len(text), MaxExpression)
	}
	if re, err := regexp.Compile(text); err == nil {
		return &Names{is: re.MatchString}, nil
	}
	re, err := regexp2.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("invalid regular expression: %w", err)
	}
	re.MatchTimeout = Timeout
	return &Names{slow: re}, nil
}

// known are the expressions that clients send unasked.
var known = map[string]func(string) bool{
	`^[^$].*`:  isOrdinary,
	`^[^\$].*`: isOrdinary,
	`^(?!(\$.+$|PersistentConfig\d+$))`: func(name string) bool {
		return !isSystem(name) && !isOldConfig(name)
	},
}

// isOrdinary reports whether a name begins with a character other than "$".
func isOrdinary(name string) bool { return name != "" && name[0] != '$' }

// isSystem reports whether `^\$.+$` matches: "." does not match a line feed, and "$" also matches
// before a last one.
func isSystem(name string) bool {
	rest, ok := strings.CutPrefix(name, "$")
	rest = strings.TrimSuffix(rest, "\n")
	return ok && rest != "" && !strings.Contains(rest, "\n")
}

// isOldConfig reports whether `^PersistentConfig\d+$` matches.
func isOldConfig(name string) bool {
	rest, ok := strings.CutPrefix(name, "PersistentConfig")
	rest = strings.TrimSuffix(rest, "\n")
	return ok && rest != "" && !strings.ContainsFunc(rest, func(r rune) bool { return !unicode.IsDigit(r) })
}

// Prefixes are those that chosen names begin with; nil: an expression chooses.
func (n *Names) Prefixes() []string { return n.prefixes }

// IsSlow reports whether a match may take as long as Timeout.
func (n *Names) IsSlow() bool { return n.slow != nil }

// Match reports whether the name is chosen. It fails with ErrTimeout.
func (n *Names) Match(name string) (bool, error) {
	switch {
	case n.is != nil:
		return n.is(name), nil
	case n.slow == nil:
		return slices.ContainsFunc(n.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }), nil
	}
	found, err := n.slow.MatchString(name)
	if err != nil {
		return false, ErrTimeout // What it says besides is the name.
	}
	return found, nil
}
