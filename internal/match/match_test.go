package match

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"
)

func TestPrefixes(t *testing.T) {
	n, err := Prefixes([]string{"", "ord", "in voice"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"order-1": true, "or": false, "in voice": true, "": false, "Order": false} {
		if got, err := n.Match(name); got != want || err != nil {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	if _, err := Prefixes([]string{"", ""}); !errors.Is(err, ErrNothing) {
		t.Errorf("no prefix: %v", err)
	}
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
		n, err := Expression(c.text)
		if err != nil {
			t.Fatal(err)
		}
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
		re, err := regexp2.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			want, err := re.MatchString(name)
			if err != nil {
				t.Fatal(err)
			}
			if is(name) != want {
				t.Errorf("%s in %q: %v, the engine says %v", text, name, is(name), want)
			}
		}
	}
}

func TestTimeout(t *testing.T) {
	n, err := Expression(`^(?!z)(a+)+$`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Match(strings.Repeat("a", 40) + "!"); !errors.Is(err, ErrTimeout) {
		t.Errorf("%v", err)
	}
}

func TestSieve(t *testing.T) {
	n, err := Expression(`^(?!z)(a+)+$`)
	if err != nil {
		t.Fatal(err)
	}
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
		n, err := Expression(expression)
		if err != nil {
			t.Fatal(err)
		}
		s := Sieve{Names: n, Budget: time.Nanosecond}
		for range 1000 {
			if !s.Takes("a") {
				t.Fatalf("%s: not taken", expression)
			}
		}
		if s.Err != want {
			t.Errorf("%s: %v", expression, s.Err)
		}
	}
}
