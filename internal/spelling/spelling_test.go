package spelling

import (
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

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
		check.Equal(t, Distance(c.a, c.b, c.bound), c.want, c.a, "to", c.b)
		check.Equal(t, Distance(c.b, c.a, c.bound), c.want, c.b, "to", c.a)
	}
}
