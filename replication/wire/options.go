package wire

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/network"
	"github.com/annalsdb/annals/replication/peersecret"
	"github.com/annalsdb/annals/stats"
)

// Kind says what a connection carries. The numbers are part of the preamble: do not change.
type Kind byte

// The kinds of connections.
const (
	KindRaft    Kind = 1 // raft's messages; both nodes belong to the same cluster
	KindService Kind = 2 // HTTP between nodes; open to a node that has no cluster yet
	KindRelay   Kind = 3 // requests of clients; both nodes belong to the same cluster
	kindInstall Kind = 4 // one raft snapshot; both nodes belong to the same cluster
	KindGossip  Kind = 5 // a stream of gossip; open like services
	KindPackets Kind = 6 // packets of gossip, each after its length; open like services
)

var kindNames = [...]string{
	KindRaft: "raft", KindService: "service", KindRelay: "relay", kindInstall: "install", KindGossip: "gossip", KindPackets: "packets",
}

// String returns the kind's name.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind %d", byte(k))
	}
	return kindNames[k]
}

// open says whether the kind is open to a node that has no cluster yet, or that follows another
// history of this one: nodes use these kinds to find each other and exchange their status.
func (k Kind) open() bool { return k == KindService || k == KindGossip || k == KindPackets }

// consensus says whether the kind belongs to raft.
func (k Kind) consensus() bool { return k == KindRaft || k == kindInstall }

// Security gives the configurations of TLS. They are requested again for every connection, so that
// certificates can be replaced while the node runs. They are not changed. Sessions are never
// resumed: each connection checks certificates.
type Security interface {
	// Server returns the configuration for a connection from another node. It
	// should require and verify the other node's certificate.
	Server() *tls.Config
	// Client returns the configuration for a connection to another node. When
	// its ServerName is empty, the certificate must be one for the host.
	Client(host string) *tls.Config
}

// Identity is what a node says of itself.
type Identity struct {
	Node        event.ID
	Cluster     event.ID // zero: the node belongs to no cluster yet
	Incarnation uint32   // which history of the cluster it follows; zero: the first, or none yet
}

// Options of a Port. Bind and Node must be given; what else is zero gets a default.
type Options struct {
	Bind      string // host:port to listen at; port 0 takes any that is free
	Advertise string // host:port where other nodes reach this one; default: the address bound

	Node        event.ID        // this node's id
	Cluster     func() event.ID // the cluster this node belongs to, zero: none yet; default: none
	Incarnation func() uint32   // the history of it that this node follows; default: the first

	// Security is how connections are secured; nil: plain TCP.
	Security Security
	// Secret, where there is no Security, has this port and others prove to each other that one
	// user runs them on this machine: a process without proof is refused, in either direction. Nil:
	// any process is accepted.
	Secret *peersecret.Secret

	// Network is what it listens and dials by; default: TCP, which finds out within half a minute
	// that the other node is gone.
	Network network.Network

	Renew            time.Duration // age at which connections are renewed; default 10 min
	DialTimeout      time.Duration // to connect; default 5 s
	HandshakeTimeout time.Duration // for TLS and the preamble, on either side; default 5 s

	// MaxConns is how many connections of other nodes are accepted at a time;
	// default 1024. An eighth is kept for raft.
	MaxConns int

	Stats  *stats.Registry // default: metrics that are not published
	Logger hclog.Logger    // default: no log
}

// EnsureDefaults replaces zero values by defaults.
func (o *Options) EnsureDefaults() {
	if o.Cluster == nil {
		o.Cluster = func() event.ID { return event.ID{} }
	}
	if o.Incarnation == nil {
		o.Incarnation = func() uint32 { return 0 }
	}
	o.Renew = cmp.Or(o.Renew, 10*time.Minute)
	o.DialTimeout = cmp.Or(o.DialTimeout, 5*time.Second)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 5*time.Second)
	o.MaxConns = cmp.Or(o.MaxConns, 1024)
	o.Network = cmp.Or[network.Network](o.Network, network.TCP{KeepAlive: keepAlive})
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
}

// Validate reports options that cannot work.
func (o *Options) Validate() error {
	switch {
	case o.Bind == "":
		return errors.New("no address to listen at between nodes")
	case o.Node.IsZero():
		return errors.New("no node id")
	case o.Secret != nil && o.Security != nil:
		return errors.New("certificates and a secret cannot be used together")
	case o.Renew < 0 || o.DialTimeout < 0 || o.HandshakeTimeout < 0 || o.MaxConns < 0:
		return errors.New("durations and limits between nodes must not be negative")
	}
	if o.Advertise != "" {
		if _, _, err := net.SplitHostPort(o.Advertise); err != nil {
			return fmt.Errorf("address advertised to other nodes: %w", err)
		}
	}
	return nil
}
