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

// attribute is one of a Self, and its tag.
type attribute struct {
	tag string
	of  any // *event.ID, *string, *bool or *int
	// Of a number.
	min, max int
}

// attributes are all that travel in tags.
func (s *Self) attributes() []attribute {
	return []attribute{
		{tag: tagCluster, of: &s.Cluster},
		{tag: tagReplication, of: &s.ReplicationAddress},
		{tag: tagHTTPHost, of: &s.HTTPHost},
		{tagHTTPPort, &s.HTTPPort, 0, math.MaxUint16},
		{tag: tagHTTPSecure, of: &s.HTTPSecure},
		{tag: tagReadOnly, of: &s.ReadOnly},
		{tagPriority, &s.Priority, math.MinInt32, math.MaxInt32},
		{tagClusterSize, &s.ClusterSize, 0, math.MaxUint16},
		{tag: tagVersion, of: &s.Version},
		{tagFormat, &s.Format, 0, math.MaxUint16},
		{tag: tagPhase, of: &s.Phase},
	}
}

// encode returns the tags.
func (s *Self) encode() (map[string]string, error) {
	tags := map[string]string{}
	for _, a := range s.attributes() {
		text := ""
		switch v := a.of.(type) {
		case *event.ID:
			if !v.IsZero() {
				text = v.String()
			}
		case *string:
			text = *v
		case *bool:
			if *v {
				text = "1"
			}
		case *int:
			if *v != 0 {
				text = strconv.Itoa(*v)
			}
		}
		if text != "" {
			tags[a.tag] = text
		}
	}

	// What others would refuse is refused here.
	decoded, err := decode(s.Node.String(), tags)
	if err != nil {
		return nil, err
	}
	if decoded != *s {
		return nil, fmt.Errorf("gossip: the attributes %+v change when they are encoded and decoded: %+v", *s, decoded)
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

// decode reads the tags of the member with the given name. Nothing of it can be trusted to be
// well-formed.
func decode(name string, tags map[string]string) (s Self, err error) {
	if s.Node, err = event.ParseID(name); err != nil || s.Node.String() != name {
		return Self{}, fmt.Errorf("gossip: the name %.60q is not that of a node", name)
	}
	for _, value := range tags {
		if strings.IndexFunc(value, func(r rune) bool { return r < '!' || r > '~' }) >= 0 {
			return Self{}, fmt.Errorf("gossip: the attribute %.60q has other than visible ASCII characters", value)
		}
	}
	for _, a := range s.attributes() {
		text, ok := tags[a.tag]
		if !ok {
			continue
		}
		switch v := a.of.(type) {
		case *event.ID:
			if *v, err = event.ParseID(text); err != nil {
				return Self{}, fmt.Errorf("gossip: cluster id %.60q: %w", text, err)
			}
		case *string:
			*v = text
		case *bool:
			*v = text == "1"
		case *int:
			if *v, err = strconv.Atoi(text); err != nil || *v < a.min || *v > a.max {
				return Self{}, fmt.Errorf("gossip: attribute %s: %.60q is not a number from %d to %d", a.tag, text, a.min, a.max)
			}
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
