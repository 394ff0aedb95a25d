package torture

import (
	"slices"
	"sync"
)

// Machines are the machines of a cluster, by the numbers of the nodes on them. Any goroutine may
// call the methods.
type Machines[M any] struct {
	mu     sync.Mutex // guards what follows
	voters int
	nodes  []M // voters, and one more, unless the cluster has a single node
	former M   // the machine that is spare, or was a node's before
}

// NewMachines gives numbers to the machines of a cluster that is made of so many voters, as many as
// HostsFor says.
func NewMachines[M any](machines []M, voters int) *Machines[M] {
	m := &Machines[M]{voters: voters, nodes: machines}
	if last := len(machines) - 1; last > voters {
		m.nodes, m.former = machines[:last], machines[last]
	}
	return m
}

// HostsFor is how many machines a cluster of so many voters needs.
func HostsFor(voters int) int {
	if voters == 1 {
		return 1
	}
	return voters + 2 // for the node after the voters, and a spare machine
}

// At is the machine of a node, or that of Former.
func (m *Machines[M]) At(i int) M {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i == Former {
		return m.former
	}
	return m.nodes[i]
}

// Nodes are the machines of all nodes but Former.
func (m *Machines[M]) Nodes() []M {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.nodes)
}

// All are the numbers of all machines.
func (m *Machines[M]) All() (numbers []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.nodes {
		numbers = append(numbers, i)
	}
	if len(m.nodes) > 1 {
		numbers = append(numbers, Former)
	}
	return numbers
}

// Swap gives a node the spare machine, whose place its own one takes. It returns both.
func (m *Machines[M]) Swap(i int) (now, former M) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[i], m.former = m.former, m.nodes[i]
	return m.nodes[i], m.former
}

// Voters is how many nodes vote.
func (m *Machines[M]) Voters() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.voters
}

// Grow makes the node after the voters one of them, or the last voter the node after them.
func (m *Machines[M]) Grow(more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if more {
		m.voters++
	} else {
		m.voters--
	}
}
