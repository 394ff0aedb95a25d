package args

import (
	"math"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzQuery(f *testing.F) {
	f.Add("embed=body&format=json", "format")
	f.Add("a=%41+%zz&=&&b", "a")
	f.Fuzz(func(t *testing.T, raw, name string) {
		got := Value(raw, name)
		if want, err := url.ParseQuery(raw); err == nil && want.Has(name) && !strings.ContainsAny(raw, ";%") && name != "" {
			if values := want[name]; len(values) == 1 && values[0] != got && len(want) == 1 {
				t.Fatalf("%q of %q: %q, want %q", name, raw, got, values[0])
			}
		}
	})
}

func TestParseNumber(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "007": 7, "9223372036854775807": math.MaxInt64, "": -1, "-1": -1, "1x": -1, "9223372036854775808": -1, "99999999999999999999": -1} {
		n, ok := Number(s, math.MaxInt64)
		if !ok {
			n = -1
		}
		if n != want {
			t.Errorf("%q: %d, want %d", s, n, want)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, name := range []string{"", "a b/é%", "a\xff", "~~", "~~a%FF", "~~\xff~~%"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if text := NameText(name); Name(text) != name || !utf8.ValidString(text) || Name(name) != name && !strings.HasPrefix(name, "~~") {
			t.Errorf("%q as text: %q, read again %q", name, text, Name(text))
		}
	})
}
