// Package tree formats statistics for operators: a flat map of values, grouped into
// a tree, as JSON or XML.
package tree

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/annalsdb/annals/stats"
)

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

// camelCase lowers the capitals that a key begins with, except the one that
// begins its next word: MainQueue becomes mainQueue, TCPQueue tcpQueue, IO queue
// io queue. What does not begin with a capital stays as it is.
func camelCase(name string) string {
	in := []rune(name)
	if len(in) == 0 || !unicode.IsUpper(in[0]) {
		return name
	}
	for i, r := range in {
		if !unicode.IsUpper(r) {
			break
		}
		// The last of several capitals belongs to the word that follows it.
		if i > 0 && i+1 < len(in) && !unicode.IsUpper(in[i+1]) && !unicode.IsSpace(in[i+1]) {
			break
		}
		in[i] = unicode.ToLower(r)
	}
	return string(in)
}

// Queue returns the statistics of a queue, in the group es.queue.<name>.
func Queue(f stats.QueueStatistics) Statistics {
	all := make(Statistics, 0, 13)
	add := func(key string, value any) {
		all = append(all, Statistic{Path: []string{"es", "queue", f.Name, key}, Value: value})
	}
	add("queueName", f.Name)
	add("groupName", f.Group)
	add("length", f.Length)
	add("lengthCurrentTryPeak", f.PeakLength)
	add("lengthLifetimePeak", f.LifetimePeakLength)
	add("totalItemsProcessed", int64(f.Items))
	add("avgItemsPerSecond", f.ItemsPerSecond)
	add("avgProcessingTime", f.ProcessingMs)
	add("idleTimePercent", f.IdlePercent)
	add("currentIdleTime", span(f.Idle))
	add("currentItemProcessingTime", span(f.Processing))
	add("inProgressMessage", orNone(f.Doing))
	add("lastProcessedMessage", orNone(f.Done))
	return all
}

// span returns a time as d:hh:mm:ss.fffffff, and nil for one that is not running.
func span(d time.Duration) any {
	if d < 0 {
		return nil
	}
	seconds := int64(d / time.Second)
	return fmt.Sprintf("%d:%02d:%02d:%02d.%07d", seconds/86400, seconds/3600%24, seconds/60%60, seconds%60, d%time.Second/100)
}

func orNone(name string) string {
	if name == "" {
		return "<none>"
	}
	return name
}
