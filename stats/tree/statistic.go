// Package tree formats statistics for operators: a flat map of values, grouped into
// a tree, as JSON or XML.
package tree

// Statistic is one statistic: its place in the tree and its value.
type Statistic struct {
	Path  []string // "proc", "gc", "gen0Size"; joined by "-" in the flat map
	Value any      // string, int64, float64, or nil
	About *About   // nil: nothing is known beyond the value
}

// About describes a statistic, for interfaces that draw it.
type About struct {
	Category, Title string
	DrawChart       bool
}

// Statistics are those of a node, in the order in which they are shown.
type Statistics []Statistic
