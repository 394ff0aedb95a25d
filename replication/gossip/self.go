package gossip

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/annalsdb/annals/event"
)

// Self is what a node says of itself. All texts together have to fit into 512
// bytes with some 100 bytes of other things; they hold visible ASCII characters only.
type Self struct {
	Node    event.ID
	Cluster event.ID // zero: it belongs to none yet

	ReplicationAddress string // host:port for other nodes
	HTTPHost           string // for clients
	HTTPPort           int
	HTTPSecure         bool // with TLS

	ReadOnly    bool
	Priority    int
	ClusterSize int
	Version     string // of the product
	Format      int    // of the database: nodes with another one are not admitted
	Phase       string // a short word of the package's user
}

// Member is a node as this one sees it.
type Member struct {
	Self
	Alive         bool
	Left          bool      // not alive because it said so, not because it was lost
	Since         time.Time // when it became alive, or dead, as seen here
	GossipAddress string    // ip:port of its port between nodes
}

// host is what the certificate of the member is issued for; empty: its address.
func (m *Member) host() string { return hostName(m.ReplicationAddress) }

// Tags of serf. Do not change: nodes of different versions read each other's.
// Zero values are left out. Unknown ones are ignored.
const (
	tagCluster     = "c"
	tagReplication = "a"
	tagHTTPHost    = "h"
	tagHTTPPort    = "p"
	tagHTTPSecure  = "s"
	tagReadOnly    = "r"
	tagPriority    = "n"
	tagClusterSize = "z"
	tagVersion     = "v"
	tagFormat      = "f"
	tagPhase       = "w"
	tagLeaving     = "x" // the node is about to leave

	leavingSize = 4 // what tagLeaving takes, for which there must always be room
)

// encode returns the tags.
func (s *Self) encode() (map[string]string, error) {
	tags := map[string]string{}
	text := func(key, value string) {
		if value != "" {
			tags[key] = value
		}
	}
	number := func(key string, value int) {
		if value != 0 {
			tags[key] = strconv.Itoa(value)
		}
	}
	flag := func(key string, value bool) {
		if value {
			tags[key] = "1"
		}
	}
	if !s.Cluster.IsZero() {
		tags[tagCluster] = s.Cluster.String()
	}
	text(tagReplication, s.ReplicationAddress)
	text(tagHTTPHost, s.HTTPHost)
	number(tagHTTPPort, s.HTTPPort)
	flag(tagHTTPSecure, s.HTTPSecure)
	flag(tagReadOnly, s.ReadOnly)
	number(tagPriority, s.Priority)
	number(tagClusterSize, s.ClusterSize)
	text(tagVersion, s.Version)
	number(tagFormat, s.Format)
	text(tagPhase, s.Phase)

	// What others would refuse is refused here.
	decoded, err := decode(s.Node.String(), tags)
	if err != nil {
		return nil, err
	}
	if decoded != *s {
		return nil, fmt.Errorf("gossip: the attributes %+v do not survive the journey: %+v", *s, decoded)
	}
	if size := tagsSize(tags); size > memberlist.MetaMaxSize-leavingSize {
		return nil, fmt.Errorf("gossip: the attributes of this node take %d bytes, %d are possible: advertise shorter host names", size, memberlist.MetaMaxSize-leavingSize)
	}
	return tags, nil
}

// tagsSize is the length of serf's encoding: a mark, the number of tags, and each
// text with a prefix of one byte, or of three if it is longer than 31 bytes.
func tagsSize(tags map[string]string) int {
	size := 2
	if len(tags) > 15 {
		size += 2
	}
	for key, value := range tags {
		for _, text := range []string{key, value} {
			size += 1 + len(text)
			if len(text) > 31 {
				size += 2
			}
		}
	}
	return size
}

// decode reads the tags of the member with the given name. Nothing of it can be trusted to be well-formed.
func decode(name string, tags map[string]string) (s Self, err error) {
	if s.Node, err = event.ParseID(name); err != nil || s.Node.String() != name {
		return Self{}, fmt.Errorf("gossip: the name %.60q is not that of a node", name)
	}
	for _, value := range tags {
		if strings.IndexFunc(value, func(r rune) bool { return r < '!' || r > '~' }) >= 0 {
			return Self{}, fmt.Errorf("gossip: the attribute %.60q has other than visible ASCII characters", value)
		}
	}
	if text, ok := tags[tagCluster]; ok {
		if s.Cluster, err = event.ParseID(text); err != nil {
			return Self{}, fmt.Errorf("gossip: cluster id %.60q: %w", text, err)
		}
	}
	s.ReplicationAddress = tags[tagReplication]
	s.HTTPHost = tags[tagHTTPHost]
	s.HTTPSecure = tags[tagHTTPSecure] == "1"
	s.ReadOnly = tags[tagReadOnly] == "1"
	s.Version = tags[tagVersion]
	s.Phase = tags[tagPhase]
	for _, n := range []struct {
		tag      string
		into     *int
		min, max int
	}{
		{tagHTTPPort, &s.HTTPPort, 0, math.MaxUint16},
		{tagPriority, &s.Priority, math.MinInt32, math.MaxInt32},
		{tagClusterSize, &s.ClusterSize, 0, math.MaxUint16},
		{tagFormat, &s.Format, 0, math.MaxUint16},
	} {
		text, ok := tags[n.tag]
		if !ok {
			continue
		}
		if *n.into, err = strconv.Atoi(text); err != nil || *n.into < n.min || *n.into > n.max {
			return Self{}, fmt.Errorf("gossip: attribute %s: %.60q is not a number from %d to %d", n.tag, text, n.min, n.max)
		}
	}
	if s.ReplicationAddress != "" {
		if _, _, err = splitHostPort(s.ReplicationAddress); err != nil {
			return Self{}, fmt.Errorf("gossip: replication address: %w", err)
		}
	}
	return s, nil
}

// hostName returns the host of an address if it is a name.
func hostName(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	return host
}
