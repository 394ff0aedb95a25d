package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"

	"github.com/annalsdb/annals/internal/network"
)

// maxGossip bounds the answer of a seed.
const maxGossip = 1 << 20

// askSeed asks the node that serves clients at an ip:port, found for a host, for the ports between
// nodes of the members that it knows. It is asked as this node is: nodes are configured alike. Its
// answer is only a list of addresses to ask: each node there answers for itself. They may be none
// yet.
func (n *Node) askSeed(ctx context.Context, address, host string) (ports []string, err error) {
	transport := &http.Transport{DialContext: network.DialContext(n.network), DisableKeepAlives: true}
	scheme := "http"
	if n.https() {
		scheme, transport.TLSClientConfig = "https", n.security.Client(host)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+"/gossip", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	answer, err := transport.RoundTrip(request) // It follows no redirection.
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxGossip))
	_ = answer.Body.Close()
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusServiceUnavailable {
		return nil, nil // A node that begins.
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", request.URL, answer.Status)
	}
	var view struct {
		Members []struct {
			IsAlive               bool
			InternalTCPIP         string
			InternalTCPPort       int
			InternalSecureTCPPort int
		}
	}
	if err := json.Unmarshal(body, &view); err != nil {
		return nil, fmt.Errorf("GET %s: %w", request.URL, err)
	}
	for _, m := range view.Members {
		if ip, err := netip.ParseAddr(m.InternalTCPIP); err == nil && ip.IsUnspecified() {
			m.InternalTCPIP = host // The node listens at all addresses, this one included.
		}
		if port := max(m.InternalTCPPort, m.InternalSecureTCPPort); m.IsAlive && port > 0 && m.InternalTCPIP != "" {
			ports = append(ports, net.JoinHostPort(m.InternalTCPIP, fmt.Sprint(port)))
		}
	}
	if len(view.Members) == 0 {
		return nil, fmt.Errorf("GET %s: the answer names no member", request.URL)
	}
	return ports, nil
}
