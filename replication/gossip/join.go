package gossip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/replication/wire"
)

const (
	// maxSeeds bounds the addresses taken from the seeds.
	maxSeeds = 64
	// maxKnocking is how many addresses are tried at a time.
	maxKnocking = 8
)

// joiner looks for the nodes that this one should know and does not: the seeds, and those
// that died. Two parts of a cluster that forgot each other find each other by it.
type joiner struct {
	g        *Gossip
	seeds    []string                    // last answer
	occupant map[netip.AddrPort]event.ID // who was met last at the address of a seed
	// seeds at which nodes serve clients: they are asked for ports between nodes
	clients map[netip.AddrPort]bool
	broken  map[netip.AddrPort]bool // those that ended the connection when they were last tried
}

// run tries until the gossip ends: in quick succession while this node is alone,
// and now and then afterwards.
func (j *joiner) run() {
	t := j.g.o.timing
	pause := t.retryMin
	for {
		j.round(j.g.ctx)
		next := t.heal
		if j.g.view.Load().alone() {
			next, pause = pause, min(2*pause, t.retryMax)
		} else {
			pause = t.retryMin
		}
		if !j.idle(j.g.ctx, next) {
			return
		}
	}
}

// idle waits for a time, or until this node has lost everybody. False says that the gossip ends.
func (j *joiner) idle(ctx context.Context, d time.Duration) bool {
	over := time.After(d)
	for was := j.g.view.Load().alone(); ; {
		v := j.g.view.Load()
		if v.alone() && !was {
			return true
		}
		was = v.alone()
		select {
		case <-over:
			return true
		case <-v.changed:
		case <-ctx.Done():
			return false
		}
	}
}

// round tries each missing node once.
func (j *joiner) round(ctx context.Context) {
	g := j.g
	seeds := j.resolve(ctx)
	j.askClients(ctx, seeds)
	g.seeds.Store(&seeds)
	v := g.view.Load()
	var missing []netip.AddrPort
	for address := range seeds {
		if !j.present(v, address) {
			missing = append(missing, address)
		}
	}
	names := map[netip.AddrPort]string{}
	for i := range v.members {
		m := &v.members[i]
		if m.Alive || m.Left {
			continue
		}
		if address, err := netip.ParseAddrPort(m.GossipAddress); err == nil {
			if _, isSeed := seeds[address]; !isSeed {
				missing = append(missing, address)
			}
			names[address] = m.Node.String()
		}
	}
	for address := range j.occupant {
		if _, ok := seeds[address]; !ok {
			delete(j.occupant, address)
		}
	}
	if len(missing) == 0 {
		return
	}

	// First all at the same time, because some may not answer for long; serf takes one after the
	// other.
	found, clients, broken := make([]event.ID, len(missing)), make([]bool, len(missing)), make([]bool, len(missing))
	each(len(missing), func(i int) {
		address := missing[i]
		node, err := g.transport.greet(ctx, address, names[address])
		if err != nil && ctx.Err() == nil {
			broken[i] = errors.Is(err, io.ErrUnexpectedEOF)
			if seed, ok := seeds[address]; broken[i] && !j.broken[address] {
				g.logger.Debug("a node that starts or ends has ended the connection", logkey.Address, address)
			} else if ok && g.o.Ask != nil && wire.NotPort(err) {
				clients[i] = j.servesClients(ctx, address, seed, err)
			} else if ok {
				g.complainOfSeed(seed, address.String(), err)
			} else {
				g.logger.Debug("a dead node does not answer", logkey.Address, address, logkey.Error, err)
			}
		}
		found[i] = node
	})
	another := false
	j.broken = map[netip.AddrPort]bool{}
	for i, address := range missing {
		j.broken[address] = broken[i]
		node := found[i]
		if clients[i] {
			j.clients[address], another = true, true
		}
		if node.IsZero() || ctx.Err() != nil {
			continue
		}
		if _, ok := seeds[address]; ok {
			j.occupant[address] = node
		}
		if j.knows(g.view.Load(), node) {
			continue
		}
		if _, err := g.serf.Join([]string{node.String() + "/" + address.String()}, true); err != nil {
			// A node of another cluster was logged when it was refused.
			g.logger.Debug("cannot join", logkey.Address, address, logkey.Error, err)
		}
	}
	if another && ctx.Err() == nil {
		j.round(ctx) // There are other seeds now, and no more of these.
	}
}

// servesClients reports whether nodes are known at a seed that is not a port between nodes.
func (j *joiner) servesClients(ctx context.Context, address netip.AddrPort, host string, greeted error) bool {
	g := j.g
	ports, err := j.ask(ctx, address, host)
	switch {
	case err == nil:
		g.logger.Info("a gossip seed is a port for clients: the ports between nodes that it lists are used instead", keySeed, host,
			logkey.Address, address, "ports", ports)
		return true
	case ctx.Err() != nil:
		return false
	case errors.Is(err, context.DeadlineExceeded): // It may be a node that hangs.
		g.complainOfSeed(host, address.String(), greeted)
		return false
	}
	if _, due := g.complaint.Due("seed of neither kind " + address.String()); due {
		g.logger.Warn("a gossip seed is neither a port between nodes nor a port for clients: give another node's host with its "+
			"ReplicationPort, or with its NodePort", keySeed, host, logkey.Address, address, logkey.Error, greeted, "asked", err)
	}
	return false
}

// ask returns the ports between nodes that are known at an address for clients.
func (j *joiner) ask(ctx context.Context, address netip.AddrPort, host string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, j.g.o.Timeout)
	defer cancel()
	ports, err := j.g.o.Ask(ctx, address.String(), host)
	return ports[:min(len(ports), maxSeeds)], err
}

// askClients puts the ports between nodes in place of seeds at which nodes serve clients.
func (j *joiner) askClients(ctx context.Context, seeds map[netip.AddrPort]string) {
	for address := range j.clients {
		host, ok := seeds[address]
		delete(seeds, address)
		var ports []string
		var err error
		if ok {
			ports, err = j.ask(ctx, address, host)
		}
		if !ok || err != nil {
			delete(j.clients, address) // It is found out again what it is.
		}
		if err != nil && j.g.ctx.Err() == nil {
			j.g.complainOfSeed(host, address.String(), err)
		}
		j.lookUp(ctx, ports, seeds)
	}
}

// resolve returns the addresses of the seeds and the names they were found under.
func (j *joiner) resolve(ctx context.Context) map[netip.AddrPort]string {
	g := j.g
	ctx, cancel := context.WithTimeout(ctx, 2*g.o.Timeout)
	defer cancel()
	seeds, err := g.o.Seeds(ctx)
	switch {
	case err == nil:
		j.seeds = seeds[:min(len(seeds), maxSeeds)]
	case g.ctx.Err() == nil:
		g.complainOfSeed("", "", err) // the last answer may still be right
	}
	addresses := map[netip.AddrPort]string{}
	j.lookUp(ctx, j.seeds, addresses)
	return addresses
}

// lookUp adds the addresses of some host:port, with the host that each was found under.
func (j *joiner) lookUp(ctx context.Context, seeds []string, addresses map[netip.AddrPort]string) {
	g := j.g
	var mu sync.Mutex
	each(len(seeds), func(i int) {
		host, port, err := splitHostPort(seeds[i])
		if err == nil {
			var found []netip.Addr
			if found, err = lookup(ctx, g.o.Port, host); err == nil {
				mu.Lock()
				defer mu.Unlock()
				for _, ip := range found {
					addresses[netip.AddrPortFrom(ip, port)] = host
				}
				return
			}
		}
		if g.ctx.Err() == nil {
			g.complainOfSeed(seeds[i], "", fmt.Errorf("look up: %w", err))
		}
	})
}

// present reports whether a seed is this node or a node known to be alive.
func (j *joiner) present(v *view, seed netip.AddrPort) bool {
	if seed == j.g.transport.advertise || j.knows(v, j.occupant[seed]) {
		return true
	}
	text := seed.String()
	return v.find(func(m *Member) bool { return m.Alive && m.GossipAddress == text }) != nil
}

// knows reports whether a node is alive, which this one is, too.
func (j *joiner) knows(v *view, node event.ID) bool {
	return v.find(func(m *Member) bool { return m.Alive && m.Node == node }) != nil
}

// complainOfSeed logs a seed that does not answer, but not all the time.
func (g *Gossip) complainOfSeed(seed, address string, err error) {
	level := hclog.Warn
	if time.Since(g.opened) < g.o.timing.seeds {
		level = hclog.Info
	}
	if _, due := g.complaint.Due(level.String() + " seed " + seed + " " + address); due {
		g.logger.Log(level, "cannot reach a gossip seed", keySeed, seed, logkey.Address, address, logkey.Error, err)
	}
}

// each calls a function for 0 to n-1, several at a time, and waits for all.
func each(n int, do func(i int)) {
	var group errgroup.Group
	group.SetLimit(maxKnocking)
	for i := range n {
		group.Go(func() error { do(i); return nil })
	}
	_ = group.Wait()
}
