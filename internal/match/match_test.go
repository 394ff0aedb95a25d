package match

import (
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

func TestFilter(t *testing.T) {
	n := check.Value(Expression(`^(?!z)(a+)+$`)).Must(t)
	long := strings.Repeat("a", 40) + "!"
	for _, c := range []struct {
		filter            Filter
		stream, eventType string
		want              bool
		err               error
	}{
		{Filter{Names: n}, "b", "aa", true, nil},
		{Filter{Names: n, OfStream: true}, "b", "aa", false, nil},
		{Filter{Names: n, OfStream: true}, "aa", "b", true, nil},
		{Filter{Names: n}, "a", long, false, ErrTimeout},
		{Filter{Names: Ordinary}, "$s", "t", true, nil},
		{Filter{Names: Ordinary}, "s", "$t", false, nil},
		{Filter{Names: Ordinary}, "s", "", true, nil},
	} {
		got, err := c.filter.Takes(c.stream, c.eventType)
		check.Equal(t, got, c.want, c.stream, c.eventType)
		check.Is(t, err, c.err, c.stream, c.eventType)
	}
}

// What a filter may take for all names together is bounded where it backtracks, and only there.
func TestBudget(t *testing.T) {
	for expression, want := range map[string]error{`^(?!z)a`: ErrTimeout, `^a`: nil} {
		n := check.Value(Expression(expression)).Must(t)
		f := Filter{Names: n, Budget: time.Nanosecond}
		var err error
		for range 1000 {
			if _, failed := f.Takes("s", "a"); failed != nil {
				err = failed
			}
		}
		check.Equal(t, err, want, expression)
	}
}
