package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// StoreOptions are the options of a Store. The zero value works.
type StoreOptions struct {
	// DNSName is the name by which members find each other, if they do so by DNS. A
	// peer's certificate may be issued for it in place of the host dialled.
	DNSName string
	Now     func() time.Time // the clock that certificates are judged by, default time.Now
}

// A Store holds the certificates in force. Its methods may be called
// concurrently, and its TLS configurations are good for as long as it is.
type Store struct {
	opts    StoreOptions
	current atomic.Pointer[Set]
}

// NewStore returns a Store with a Set in force.
func NewStore(set *Set, o StoreOptions) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Store{opts: o}
	s.current.Store(set)
	return s
}

// Current returns the Set in force.
func (s *Store) Current() *Set { return s.current.Load() }

// Replace puts another Set in force, in one step. Handshakes that begin
// afterwards use it; connections that are there stay as they are.
func (s *Store) Replace(set *Set) { s.current.Store(set) }

// Server returns the configuration of a listener for other nodes. A client
// must present the certificate of a node, or its handshake fails with an error
// that wraps ErrChain or ErrNotNode.
func (s *Store) Server() *tls.Config {
	return perHandshake(func(*tls.ClientHelloInfo) *tls.Config {
		set := s.Current()
		return &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{set.Certificate},
			// Verified by ourselves: the rules of nodes are not those of TLS, and the error is to
			// say more.
			ClientAuth: tls.RequireAnyClientCert,
			VerifyConnection: func(state tls.ConnectionState) error {
				return set.verifyNode(state.PeerCertificates, s.opts.Now())
			},
			SessionTicketsDisabled: true,
		}
	})
}

// Client returns the configuration for connections to another node. The
// host is the one that is dialled, a DNS name or an IP address without port. The
// other side must present the certificate of a node, issued for that host or
// for the DNSName of the options; else the handshake fails with an error
// that wraps ErrChain, ErrNotNode or ErrHost.
func (s *Store) Client(host string) *tls.Config {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &s.Current().Certificate, nil
		},
		// VerifyConnection does what this leaves out, by the rules of nodes.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return s.verifyServer(state.PeerCertificates, host)
		},
	}
	if _, err := netip.ParseAddr(host); err != nil {
		config.ServerName = host
	}
	return config
}

// verifyServer checks that the other side is the node that was dialled.
func (s *Store) verifyServer(presented []*x509.Certificate, host string) error {
	if err := s.Current().verifyNode(presented, s.opts.Now()); err != nil {
		return err
	}
	leaf := presented[0]
	if matchesHost(leaf, host) || s.opts.DNSName != "" && matchesHost(leaf, s.opts.DNSName) {
		return nil
	}
	also := ""
	if s.opts.DNSName != "" {
		also = fmt.Sprintf(" nor for %q", s.opts.DNSName)
	}
	return fmt.Errorf("%w: it was not issued for %q%s, but for %q", ErrHost, host, also, NamesOf(leaf))
}

// PublicServer returns the configuration of the listener for clients. A client
// certificate is asked for and not required, but one that is presented must
// chain to a trusted root: else the handshake fails with an error that wraps
// ErrChain. Whether it is that of a node is decided with the handshake: see WithPeer.
// Sessions are not resumed: a ticket of before would bring back a client without its
// certificate, and a server whose certificate it never saw.
func (s *Store) PublicServer() *tls.Config {
	config := perHandshake(func(hello *tls.ClientHelloInfo) *tls.Config {
		set, peer := s.Current(), peerOf(hello.Context())
		return &tls.Config{
			MinVersion:   tls.VersionTLS12,
			NextProtos:   publicProtocols(),
			Certificates: []tls.Certificate{set.Certificate},
			ClientAuth:   tls.RequestClientCert,
			ClientCAs:    set.acceptable,
			VerifyConnection: func(state tls.ConnectionState) error {
				presented := state.PeerCertificates
				if len(presented) == 0 {
					return nil
				}
				now := s.opts.Now()
				node := set.verifyNode(presented, now) == nil
				if err := set.verify(presented, now, x509.ExtKeyUsageClientAuth); err != nil && !node {
					return err
				}
				peer.node.Store(node)
				return nil
			},
			SessionTicketsDisabled: true,
		}
	})
	config.NextProtos = publicProtocols()
	return config
}

func publicProtocols() []string { return []string{"h2", "http/1.1"} }

// perHandshake returns a configuration that is built for every handshake.
func perHandshake(build func(*tls.ClientHelloInfo) *tls.Config) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return build(hello), nil
		},
	}
}

// peer is what is known of the other side of a connection.
type peer struct{ node atomic.Bool }

type peerKey struct{}

// WithPeer prepares the context of a connection to remember who the other side
// is. It is meant for http.Server.ConnContext: net/http does the handshake with
// this context, and the contexts of requests descend from it.
func WithPeer(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, new(peer))
}

// FromNode says whether the connection of a request is that of a node, as its handshake decided by
// the Set then in force. It stays so for as long as the connection. Without WithPeer no connection
// is that of a node.
func FromNode(ctx context.Context) bool { return peerOf(ctx).node.Load() }

// peerOf returns what is remembered of a connection, or an unused place.
func peerOf(ctx context.Context) *peer {
	if p, ok := ctx.Value(peerKey{}).(*peer); ok {
		return p
	}
	return new(peer)
}
