// Package address knows what a node is called: by the client that asks, by proxies before it, and
// by its operator. It tells requests of other sites' pages by it.
package address

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/annalsdb/annals/http/args"
)

// Names are those by which clients call this node, as they stand before the port in the
// header Host: in lower case and without a dot at the end. One that begins with a dot stands
// for all names below it, and * for all there are.
type Names struct {
	advertiseHost string // in addresses, in place of the request's; empty: the request's
	advertisePort int

	known map[string]bool
	below []string
	any   bool
}

// New returns the names of a node.
func New(hosts []string, advertiseHost string, advertisePort int) *Names {
	h := &Names{advertiseHost: advertiseHost, advertisePort: advertisePort, known: map[string]bool{}}
	for _, name := range hosts {
		name = plainHost(name)
		switch {
		case name == "*":
			h.any = true
		case strings.HasPrefix(name, "*."):
			h.below = append(h.below, name[1:])
		case name != "":
			h.known[name] = true
		}
	}
	return h
}

// plainHost is a name as names has it.
func plainHost(name string) string {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// named reports whether a host is one that the operator gave the node.
func (h *Names) named(host string) bool {
	if h.known[host] {
		return true
	}
	for _, end := range h.below {
		if strings.HasSuffix(host, end) {
			return true
		}
	}
	return false
}

// own reports whether this node is what is called by a host on the connection of a request:
// it was named so, or host is a name of loopback, or the address that was connected to.
func (h *Names) own(host string, r *http.Request) bool {
	if h.named(host) || isLocalName(host) {
		return true
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	local, ok := localAddr(r)
	return address.IsLoopback() || ok && local.Addr().Unmap() == address.Unmap()
}

func isLocalName(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// localAddr is the local address of a request's connection.
func localAddr(r *http.Request) (netip.AddrPort, bool) {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, false
	}
	return a.AddrPort(), true
}

// MayCall reports whether a client may call this node by the Host of a request. A page whose
// author has its name lead to this node now ("DNS rebinding") calls the node by that
// name, and a browser lets it read the answers. So a name must be known. An address cannot
// be led elsewhere, and neither can a name without a dot: no one on the internet has one.
// What calls the node by no name at all is not a browser.
func (h *Names) MayCall(r *http.Request) bool {
	name, _ := splitHost(r.Host)
	if h.any || name == "" || h.known[name] {
		return true
	}
	name = plainHost(name)
	if !strings.Contains(name, ".") || h.named(name) || isLocalName(name) {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// Vouches reports whether the address that a request's answer has of this node is known to
// be this node's, whatever the client says.
func (h *Names) Vouches(r *http.Request) bool {
	if IsForwarded(r.Header) {
		return false
	}
	host, port := splitHost(r.Host)
	if h.advertiseHost == "" && !h.own(plainHost(host), r) {
		return false
	}
	local, known := localAddr(r)
	if h.advertisePort != 0 || !known {
		return true
	}
	n, ok := args.Number(port, 65535)
	return ok && n == int64(local.Port())
}

// IsForwarded reports whether a proxy, or a client that acts as one, gives the node's name.
func IsForwarded(m http.Header) bool {
	for _, key := range ForwardedKeys {
		if m[key] != nil {
			return true
		}
	}
	return false
}
