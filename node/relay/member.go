package relay

import (
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/annalsdb/annals/event"
)

// memberPace is how often a relay looks whether the node that answers lives.
const memberPace = time.Second

// RelayTo sends the request to a member and its answer to the client, both as they
// come: an answer may go on for days. A member that falls silent keeps its
// connections, so the relay ends once gossip has taken it for dead for a while.
func (p *Relay) RelayTo(w http.ResponseWriter, r *http.Request, to *event.Member) bool {
	if p.cluster.Port() == nil {
		return false
	}
	node := to.Node
	ctx, end := p.while(r.Context(), memberPace, func() bool {
		for _, m := range p.cluster.View().Members {
			if m.Node == node {
				return m.Alive
			}
		}
		return false
	})
	defer end()
	address := net.JoinHostPort(to.ReplicationHost, strconv.Itoa(to.ReplicationPort))
	answer, sent, err := p.send(ctx, p.patient(), r, address, r.Body)
	switch {
	case err == nil:
		p.pass(w, r, answer)
	case !sent:
		return false
	default:
		p.fail(w, r, true)
	}
	return true
}
