// Package network is the one door through which a node listens, dials and looks names up, so that
// a test can put another network in the place of TCP.
package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Network connects nodes and clients. Addresses are host:port. Its connections and listeners have
// addresses of type *net.TCPAddr. What else *net.TCPConn has is used where it is there: ReadFrom,
// WriteTo, CloseWrite and SyscallConn.
type Network interface {
	// Listen binds an address; port 0 takes any that is free.
	Listen(ctx context.Context, address string) (net.Listener, error)
	// Dial returns a connection that outlives ctx, or an error no later than ctx ends.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Resolver is what a Network may be besides: one that knows hosts by name.
type Resolver interface {
	// Lookup returns the addresses of a host, in the order in which they are to be tried.
	Lookup(ctx context.Context, host string) ([]netip.Addr, error)
}

// TCP is the network of the operating system.
type TCP struct {
	Timeout   time.Duration       // of Dial; 0: what the system allows
	KeepAlive net.KeepAliveConfig // of all connections; zero: the defaults of package net
}

// Listen listens at a TCP port.
func (t TCP) Listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: t.KeepAlive}
	return config.Listen(ctx, "tcp", address)
}

// Dial connects to a TCP port.
func (t TCP) Dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: t.Timeout, KeepAliveConfig: t.KeepAlive}
	return dialer.DialContext(ctx, "tcp", address)
}

// Lookup asks the resolver of the operating system.
func (TCP) Lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// Lookup returns the addresses of a host. Without a Resolver there are hosts by address only.
func Lookup(ctx context.Context, n Network, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	if r, ok := n.(Resolver); ok {
		return r.Lookup(ctx, host)
	}
	return nil, fmt.Errorf("look up %s: this network has no names", host)
}

// DialContext returns Dial as HTTP clients take it.
func DialContext(n Network) func(ctx context.Context, _, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) { return n.Dial(ctx, address) }
}
