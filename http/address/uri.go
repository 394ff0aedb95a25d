package address

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/atom"
)

// Canonical keys of the headers that name the address a client believes in.
const (
	keyForwardedHost   = "X-Forwarded-Host"
	keyForwardedPort   = "X-Forwarded-Port"
	keyForwardedProto  = "X-Forwarded-Proto"
	keyForwardedPrefix = "X-Forwarded-Prefix"
)

// ForwardedKeys are those headers.
var ForwardedKeys = [...]string{keyForwardedHost, keyForwardedPort, keyForwardedProto, keyForwardedPrefix}

// Base appends scheme, host and port as the client addressed the node, without a
// slash at the end: the request's own, overridden by the advertised address,
// then by a proxy's headers. Nothing but bytes that need no escaping in JSON,
// XML and headers gets through.
func (h *Names) Base(b []byte, r *http.Request) []byte {
	m := r.Header
	proto, fhost, fport := m[keyForwardedProto], m[keyForwardedHost], m[keyForwardedPort]
	if proto == nil && fhost == nil && fport == nil && h.advertiseHost == "" && h.advertisePort == 0 &&
		r.TLS == nil && IsAuthority(r.Host) && !strings.HasSuffix(r.Host, ":80") {
		b = append(b, "http://"...)
		return append(b, r.Host...)
	}
	scheme, host, port := h.address(r)
	b = append(b, scheme...)
	b = append(b, "://"...)
	b = append(b, host...)
	if port != "" && !(scheme == "http" && port == "80") && !(scheme == "https" && port == "443") {
		b = append(b, ':')
		b = append(b, port...)
	}
	return b
}

// address finds the parts of the base URI. The port is empty when the request gives none.
func (h *Names) address(r *http.Request) (scheme, host, port string) {
	m := r.Header
	proto, fhost, fport := m[keyForwardedProto], m[keyForwardedHost], m[keyForwardedPort]
	scheme = "http"
	if r.TLS != nil {
		scheme = "https"
	}
	host, port = splitHost(requestHost(r))
	if h.advertiseHost != "" {
		host = h.advertiseHost
		if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
			host = "[" + host + "]"
		}
	}
	if h.advertisePort != 0 {
		port = strconv.Itoa(h.advertisePort)
	}
	if p := firstOf(fport); p != "" {
		if _, ok := args.Number(p, 65535); ok {
			port = p
		}
	}
	if p := firstOf(proto); strings.EqualFold(p, "http") || strings.EqualFold(p, "https") {
		scheme = strings.ToLower(p)
	}
	if h := firstOf(fhost); h != "" && IsAuthority(h) {
		var p string
		if host, p = splitHost(h); p != "" {
			port = p
		}
	}
	return scheme, host, port
}

// requestHost is the Host header, or the local address of the connection.
func requestHost(r *http.Request) string {
	if IsAuthority(r.Host) {
		return r.Host
	}
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return a.String()
	}
	return "localhost"
}

// AppendPrefix appends what a proxy took away from the front of the path, without a
// slash at its end.
func AppendPrefix(b []byte, r *http.Request) []byte {
	v := r.Header[keyForwardedPrefix]
	if v == nil {
		return b
	}
	p := strings.Trim(firstOf(v), "/")
	if p == "" {
		return b
	}
	b = append(b, '/')
	for i := range len(p) {
		if c := p[i]; c == '/' || c == '%' {
			b = append(b, c)
		} else {
			b = atom.AppendEscapedByte(b, c)
		}
	}
	return b
}

// firstOf returns the first of the values of a list header.
func firstOf(v []string) string {
	if len(v) == 0 {
		return ""
	}
	first, _, _ := strings.Cut(v[0], ",")
	return strings.TrimSpace(first)
}

// splitHost cuts host:port; an IPv6 address stays within its brackets.
func splitHost(s string) (host, port string) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.HasSuffix(s, "]") {
		return s, ""
	}
	p := s[i+1:]
	if _, isPort := args.Number(p, 65535); p != "" && !isPort {
		return s, ""
	}
	return s[:i], p
}

// IsAuthority reports whether s is fit to stand in an address as it is.
func IsAuthority(s string) bool {
	for i := range len(s) {
		if c := s[i]; !atom.IsUnreserved(c) && c != ':' && c != '[' && c != ']' {
			return false
		}
	}
	return s != ""
}

// Forward makes the leader give out the addresses that this node would: the
// client knows no other, and the leader cannot see whether it came by TLS.
func (h *Names) Forward(r *http.Request) {
	scheme, host, port := h.address(r)
	if port == "" { // Or the leader would think of its own.
		port = "80"
		if scheme == "https" {
			port = "443"
		}
	}
	r.Header[keyForwardedProto] = []string{scheme}
	r.Header[keyForwardedHost] = []string{host + ":" + port}
	delete(r.Header, keyForwardedPort)
}
