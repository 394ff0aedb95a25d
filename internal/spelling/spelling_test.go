package spelling

import "testing"

func TestEditDistance(t *testing.T) {
	cases := []struct {
		a, b  string
		bound int
		want  int
	}{
		{"", "", 6, 0},
		{"abc", "abc", 6, 0},
		{"abc", "abd", 6, 1},
		{"abc", "ab", 6, 1},
		{"ab", "xab", 6, 1},
		{"kitten", "sitting", 6, 3},
		{"ab", "ba", 6, 2},
		{"", "abcde", 6, 5},
		{"", "abcdefgh", 6, 6},
	}
	for _, c := range cases {
		if got := Distance(c.a, c.b, c.bound); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
		if got := Distance(c.b, c.a, c.bound); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.b, c.a, got, c.want)
		}
	}
}
