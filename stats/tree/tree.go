package tree

import "strings"

// Node is an object or, at the end of a path, a statistic.
type Node struct {
	key      string    // as in JSON
	figure   Statistic // of a leaf
	children []*Node
	isObject bool
}

// Tree groups the statistics by their paths. Keys are the same when their JSON forms
// are. If two statistics have the same place, the later one counts. Where one path
// is the beginning of another, the longer one counts: an object cannot also be a
// statistic.
func (f Statistics) Tree() *Node {
	root := &Node{isObject: true}
	for _, figure := range f {
		n := root
		for _, name := range figure.Path {
			n = n.child(camelCase(name))
		}
		if !n.isObject {
			n.figure = figure
		}
	}
	return root
}

// child returns the child with that key, which it adds when there is none.
func (n *Node) child(key string) *Node {
	n.isObject = true
	for _, c := range n.children {
		if c.key == key {
			return c
		}
	}
	c := &Node{key: key}
	n.children = append(n.children, c)
	return c
}

// Find descends by keys, whose letters may be of either case. It finds objects
// only, no statistics. Where two keys differ in case alone, the exact one counts.
func (n *Node) Find(path []string) (*Node, bool) {
	for _, name := range path {
		var found *Node
		for _, c := range n.children {
			if c.key == name {
				found = c
				break
			}
			if found == nil && strings.EqualFold(c.key, name) {
				found = c
			}
		}
		if found == nil {
			return nil, false
		}
		n = found
	}
	return n, n.isObject
}
