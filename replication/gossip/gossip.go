package gossip

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/throttle"
)

// ErrClosed says that the gossip of this node has ended.
var ErrClosed = errors.New("gossip is closed")

// eventBuffer is larger than the number of events that serf may still send to a closed channel
// (1024 waiting and one being sent): so serf can end even after watch has emptied the channel for
// the last time.
const eventBuffer = 2048

// Gossip is this node's part in the list of members.
type Gossip struct {
	o         Options
	logger    hclog.Logger
	complaint *throttle.Lines[string]
	metrics   *metrics
	opened    time.Time // since when this node is alive
	transport *transport
	serf      *serf.Serf
	events    chan serf.Event

	self  atomic.Pointer[Self]
	view  atomic.Pointer[view]
	seeds atomic.Pointer[map[netip.AddrPort]string] // names under which seeds were found
	// all that serf knows but this node, also those left out of the view
	known atomic.Pointer[map[string]bool]

	announcing sync.Mutex        // guards what follows; nothing else is locked under it
	announced  map[string]string // hosts of nodes let in that are not in a view yet, see hostOf

	refreshing sync.Mutex // makes views one after the other

	updating sync.Mutex // guards what follows; held while news are passed on, see Update
	ending   bool

	ctx    context.Context // of the joiner
	cancel context.CancelFunc
	ended  chan struct{} // closed when serf has ended
	wg     sync.WaitGroup

	closing sync.Once
	closed  error // how it went; set before closing is done
}

// Open starts to listen and to look for other nodes. The result must be closed.
func Open(o Options) (*Gossip, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	g := &Gossip{
		o: o, logger: o.Logger.Named("gossip"), complaint: &throttle.Lines[string]{Every: o.timing.again}, metrics: newMetrics(o.Stats),
		opened: time.Now(), events: make(chan serf.Event, eventBuffer),
		ended: make(chan struct{}), announced: map[string]string{},
	}
	self := o.Self
	g.self.Store(&self)
	g.view.Store(&view{changed: make(chan struct{})})
	tags, err := self.encode()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.Timeout)
	defer cancel()
	address, err := advertised(ctx, o.Port)
	if err != nil {
		return nil, err
	}
	g.transport = &transport{port: o.Port, advertise: address, timeout: o.Timeout, metrics: g.metrics, allow: o.allow, hostOf: g.hostOf}
	g.transport.start()
	if g.serf, err = serf.Create(g.serfConfig(tags)); err != nil {
		return nil, errors.Join(fmt.Errorf("gossip: %w", err), g.transport.Shutdown())
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.refresh()
	g.wg.Go(g.watch)
	g.wg.Go((&joiner{g: g, occupant: map[netip.AddrPort]event.ID{}, clients: map[netip.AddrPort]bool{}}).run)
	return g, nil
}

func (g *Gossip) serfConfig(tags map[string]string) *serf.Config {
	p, log := g.o.pace(), &libraryLog{to: g.logger, complaint: g.complaint}

	m := memberlist.DefaultLANConfig()
	m.Transport = g.transport
	m.LogOutput = log
	m.TCPTimeout = 2 * g.o.Timeout // for one exchange
	m.ProbeInterval, m.ProbeTimeout = p.probe, p.direct
	m.SuspicionMult, m.SuspicionMaxTimeoutMult = suspicion, suspicionMax
	m.AwarenessMaxMultiplier = 3 // nodes that lose several others at a time must still notice soon
	m.GossipInterval = p.spread
	m.GossipToTheDeadTime = 15 * g.o.Interval
	m.PushPullInterval = 5 * g.o.Interval / 2
	// there is little to compress, and what is received is not expanded without bound
	m.EnableCompression = false
	m.RequireNodeNames = false // seeds are joined by address
	// A node may come back at another address as soon as its old one is dead.
	m.DeadNodeReclaimTime = time.Nanosecond

	c := serf.DefaultConfig()
	c.NodeName = g.self.Load().Node.String()
	c.Tags = tags
	c.MemberlistConfig = m
	c.LogOutput = log
	c.EventCh = g.events
	c.Merge = gate{g}
	c.BroadcastTimeout = p.broadcast
	c.ReconnectTimeout, c.TombstoneTimeout = g.o.DeadRemoval, g.o.DeadRemoval
	c.ReapInterval = p.reap
	c.ReconnectInterval = 24 * 365 * time.Hour // the joiner does that, and finds more
	c.EventBuffer, c.QueryBuffer = 1, 1        // neither is used
	c.EnableNameConflictResolution = false     // it would end the node that came second
	c.DisableCoordinates = true
	return c
}

// watch keeps the view up to date. It takes serf's events until the very end.
func (g *Gossip) watch() {
	for {
		select {
		case <-g.events:
			g.drain()
			g.refresh()
		case <-g.ended:
			g.drain()
			return
		}
	}
}

func (g *Gossip) drain() {
	for {
		select {
		case <-g.events:
		default:
			return
		}
	}
}

// Members returns all nodes including this one, by node id. Members that left or died
// are among them until Options.DeadRemoval is over.
func (g *Gossip) Members() []Member { return append([]Member(nil), g.view.Load().members...) }

// Changed returns a channel that is closed when Members changes. Take it before calling Members,
// and again after it was closed.
func (g *Gossip) Changed() <-chan struct{} { return g.view.Load().changed }

// Addr returns the ip:port that is advertised to other nodes.
func (g *Gossip) Addr() string { return g.transport.advertise.String() }

// Update changes what this node says of itself; the function gets a copy and must not call Gossip.
// Members has the change when Update returns. Update waits up to 0.7 s until the change is sent to
// other nodes. It is not an error if none took it by then, because nodes also exchange their whole
// lists.
func (g *Gossip) Update(change func(*Self)) error {
	// One after the other: the last change must be the last one told.
	g.updating.Lock()
	defer g.updating.Unlock()
	if g.ending {
		return ErrClosed
	}
	old := g.self.Load()
	self := *old
	change(&self)
	if self.Node != old.Node {
		return errors.New("gossip: a node cannot change its id")
	}
	if self == *old {
		return nil
	}
	tags, err := self.encode()
	if err != nil {
		return err
	}
	g.self.Store(&self)
	g.refresh()
	return g.tell(tags, tellAttempts)
}

// tellAttempts is how often Update tries. Once more is enough almost always.
const tellAttempts = 5

// tell makes tags those of this node. memberlist loses them without a word if it
// has to contradict a rumour about this node at the same moment: it takes a number for
// the news first and finds a higher one in use when it comes to spread them.
func (g *Gossip) tell(tags map[string]string, attempts int) error {
	for range attempts {
		// The size is right, so an error can only be the wait that was too short.
		err := g.serf.SetTags(tags)
		if maps.Equal(g.serf.LocalMember().Tags, tags) {
			if err != nil {
				g.logger.Debug("attributes not passed on yet", logkey.Error, err)
			}
			return nil
		}
	}
	return errors.New("gossip: serf did not take the attributes of this node")
}

// Close says good-bye to the others, for which it takes at most 2 s, and ends
// the gossip of this node.
func (g *Gossip) Close() error {
	g.closing.Do(func() { g.closed = g.end(true) })
	return g.closed
}

// leave tells the others that this node ends, by its tags. They travel from node to
// node and, because that may miss some of them, each node gets them by an exchange
// of whole lists, too. Both are bounded by pace.broadcast.
//
// The libraries' own ways of leaving are not used. serf's message is ignored where an
// exchange of lists overtakes it, so that the node counts as lost; memberlist's is lost
// when the node has to contradict a rumour about itself at the same moment, which it
// looks at without its lock. To both, the node dies.
func (g *Gossip) leave() {
	tags, err := g.self.Load().encode()
	if err == nil {
		tags[tagLeaving] = "1"
		err = g.tell(tags, 1)
	}
	if err != nil {
		g.logger.Warn("cannot leave gossip gracefully", logkey.Error, err)
		return
	}
	var others []string
	for _, m := range g.Members() {
		if m.Alive && m.Node != g.self.Load().Node {
			others = append(others, m.Node.String()+"/"+m.GossipAddress)
		}
	}
	told := make(chan struct{})
	g.wg.Go(func() { // it ends with the connections of the transport, if not before
		defer close(told)
		each(len(others), func(i int) {
			if _, err := g.serf.Memberlist().Join(others[i : i+1]); err != nil {
				g.logger.Debug("leaving was not heard", logkey.Address, others[i], logkey.Error, err)
			}
		})
	})
	select {
	case <-told:
	case <-time.After(g.o.pace().broadcast):
	}
}

// end ends everything, without a word if it is not graceful.
func (g *Gossip) end(graceful bool) error {
	g.updating.Lock()
	g.ending = true
	g.updating.Unlock()
	g.cancel()
	if graceful && !g.view.Load().alone() {
		g.leave()
	}
	// The joiner may be within serf.Join, which ends when the transport's connections do.
	err := errors.Join(g.transport.Shutdown(), g.serf.Shutdown())
	close(g.ended)
	g.wg.Wait()
	return err
}
