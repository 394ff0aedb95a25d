package match

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"

	"github.com/annalsdb/annals/internal/check"
)

func TestPrefixes(t *testing.T) {
	n := check.Value(Prefixes([]string{"", "ord", "in voice"})).Must(t)
	for name, want := range map[string]bool{"order-1": true, "or": false, "in voice": true, "": false, "Order": false} {
		if got, err := n.Match(name); got != want || err != nil {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	check.Is(t, check.Err(Prefixes([]string{"", ""})), ErrNothing, "no prefix")
}

func TestExpression(t *testing.T) {
	for _, c := range []struct {
		text, name string
		want       bool
	}{
		{`der`, "order-1", true},
		{`^der`, "order-1", false},
		{`^order-\d+$`, "order-17", true},
		{`^(?!order-1$)`, "order-1", false},
		{`^(?!order-1$)`, "order-12", true},
		{`(?<=\$ce-)\w+`, "$ce-order", true},
	} {
		n := check.Value(Expression(c.text)).Must(t)
		if got, err := n.Match(c.name); got != c.want || err != nil {
			t.Errorf("%s in %q: %v, %v", c.text, c.name, got, err)
		}
	}
	for _, text := range []string{`(`, strings.Repeat("a", MaxExpression+1)} {
		if _, err := Expression(text); err == nil {
			t.Errorf("an expression of %d bytes was taken", len(text))
		}
	}
}

// What is matched without an engine is matched as the engine would.
func TestKnownExpressions(t *testing.T) {
	names := []string{"", "$", "$a", "$$a", "a$", "order", "PersistentConfig", "PersistentConfig1", "PersistentConfig12x", "PersistentConfig1\n",
		"$\n", "$a\n", "$a\nb", "\n", "ä", "aPersistentConfig1", "$PersistentConfig1", "PersistentConfig١"}
	for text, is := range known {
		re := check.Value(regexp2.Compile(text)).Must(t)
		for _, name := range names {
			want := check.Value(re.MatchString(name)).Must(t)
			check.Equal(t, is(name), want, text, "in", name, "..., the engine says")
		}
	}
}

func TestTimeout(t *testing.T) {
	n := check.Value(Expression(`^(?!z)(a+)+$`)).Must(t)
	check.Is(t, check.Err(n.Match(strings.Repeat("a", 40)+"!")), ErrTimeout)
}

func TestSieve(t *testing.T) {
	n := check.Value(Expression(`^(?!z)(a+)+$`)).Must(t)
	s := Sieve{Names: n}
	if !s.Takes("aa") || s.Takes("b") || s.Err != nil {
		t.Errorf("short names: %v", s.Err)
	}
	if !s.Takes(strings.Repeat("a", 40)+"!") || !errors.Is(s.Err, ErrTimeout) || !s.Takes("b") {
		t.Errorf("a long one: %v", s.Err)
	}
}

// What a filter may take for all names together is bounded where it backtracks, and only there.
func TestBudget(t *testing.T) {
	for expression, want := range map[string]error{`^(?!z)a`: ErrTimeout, `^a`: nil} {
		n := check.Value(Expression(expression)).Must(t)
		s := Sieve{Names: n, Budget: time.Nanosecond}
		for range 1000 {
			if !s.Takes("a") {
				t.Fatalf("%s: not taken", expression)
			}
		}
		check.Equal(t, s.Err, want, expression)
	}
}
