package simulation

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"syscall"

	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/torture"
)

const (
	// delayLimit bounds how many changes after the one that was chosen the blow falls.
	delayLimit = 4
	// aftermath bounds how many changes after one that failed the power fails: about as many as the
	// process makes that comes next, before it serves.
	aftermath = 64
)

// danger chooses the moments at which nodes are struck. It counts the blows at each kind of change,
// and each makes the next one there half as likely: so a change that is made once in minutes is met
// as well as one that is made a thousand times a second.
type danger struct {
	mu      sync.Mutex
	rng     *rand.Rand
	of      map[*member]torture.Danger
	pending map[*member]blow
	blows   map[string]int // so far, by kind of change, at all nodes
}

// blow is one that is to come.
type blow struct {
	left  int  // changes until then
	power bool // fails, whatever else may
}

func newDanger(rng *rand.Rand) *danger {
	return &danger{rng: rng, of: map[*member]torture.Danger{}, pending: map[*member]blow{}, blows: map[string]int{}}
}

// Endanger implements the danger of torture.
func (c *cluster) Endanger(i int, d torture.Danger) {
	m := c.At(i)
	c.danger.mu.Lock()
	defer c.danger.mu.Unlock()
	delete(c.danger.pending, m)
	if c.danger.of[m] = d; d == (torture.Danger{}) {
		delete(c.danger.of, m)
	}
}

// numbers are the parts of names by which files of one kind differ.
var numbers = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16}(-[0-9a-f]{16}-[a-z2-7]{8})?|[0-9]+`)

// kindOf says what is changed, such as "rename /data/chunk-#.#.tmp".
func kindOf(op vfs.Op) string { return string(op.Kind) + " " + numbers.ReplaceAllString(op.Name, "#") }

// changes hears of each change of the disk of a member just before it. It strikes now or not: the
// error is that of the change.
func (m *member) changes(g *gate, op vfs.Op) error {
	d, ok := m.c.danger.strikes(m, op)
	switch {
	case !ok:
		return nil
	case d.Errors:
		g.note(op, syscall.EIO)
		return syscall.EIO
	}
	m.mu.Lock()
	runs := m.process != nil && m.process.gate == g
	m.mu.Unlock()
	if !runs { // It was asked to end.
		return nil
	}
	m.c.trace.add(m.name, fmt.Sprintf("the power fails just before: %s %s", op.Kind, op.Name))
	hit := []int{int(m.index.Load())}
	if d.Outage {
		hit = m.c.All()
	}
	for _, i := range hit {
		if err := m.c.At(i).cutPower(i); err != nil {
			m.c.trace.add(m.name, "no power cut: "+err.Error())
		}
	}
	return nil
}

// strikes decides whether a member is struck just before a change, and by which one of the dangers.
func (d *danger) strikes(m *member, op vfs.Op) (torture.Danger, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of, ok := d.of[m]
	if !ok {
		return of, false
	}
	next, chosen := d.pending[m]
	if !chosen {
		kind := kindOf(op)
		if blows := d.blows[kind]; blows > 30 || d.rng.IntN(1<<blows) > 0 {
			return of, false
		}
		d.blows[kind]++
		next = blow{left: d.rng.IntN(delayLimit)}
	}
	if next.left > 0 {
		next.left--
		d.pending[m] = next
		return of, false
	}
	delete(d.pending, m)
	if of.Errors = of.Errors && !next.power && d.rng.IntN(2) == 0; of.Errors {
		// Who believes what failed is found out by a power cut soon after.
		d.pending[m] = blow{left: d.rng.IntN(aftermath), power: true}
	}
	return of, true
}
