package wire

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
)

// ErrConnect says that no connection to another node came about, so that nothing was sent.
var ErrConnect = errors.New("connect to node")

// errSaysNothing is how an address was that took the connection.
var errSaysNothing = errors.New("it is silent")

// NotPort says whether a dialled address takes connections and does not speak as a port between
// nodes does, or not yet.
func NotPort(err error) bool {
	record, ok := errors.AsType[tls.RecordHeaderError](err)
	return errors.Is(err, errSaysNothing) || errors.Is(err, errNotOurs) || errors.Is(err, errTLS) || errors.Is(err, io.ErrUnexpectedEOF) || ok && record.RecordHeader[0] != magic[0]
}

// errNoAnswer is why a handshake that was begun was given up.
var errNoAnswer = errors.New("no answer in time")

// Dial connects to the port of another node at host:port. An answer other than welcome is a
// *RefusedError, any other failure is an ErrConnect. It takes at most DialTimeout and
// HandshakeTimeout together, and less if the context is over earlier.
func (p *Port) Dial(ctx context.Context, k Kind, address string) (net.Conn, error) {
	return p.DialHost(ctx, k, address, "")
}

// DialHost does the same where the address is an ip:port and the certificate one for a host; empty:
// for the address.
func (p *Port) DialHost(ctx context.Context, k Kind, address, host string) (net.Conn, error) {
	c, err := p.dialHost(ctx, k, address, host)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (p *Port) dialHost(ctx context.Context, k Kind, address, host string) (*conn, error) {
	c, err := p.connect(ctx, k, address, host)
	if err != nil {
		p.metrics.unmade.Inc()
		if p.ctx.Err() != nil {
			err = errClosing
		}
		if _, refused := errors.AsType[*RefusedError](err); !refused {
			err = fmt.Errorf("%w at %s: %w", ErrConnect, address, err)
		}
		return nil, err
	}
	p.metrics.dialled.Inc()
	return c, nil
}

func (p *Port) connect(ctx context.Context, k Kind, address, host string) (*conn, error) {
	dialled, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	host = cmp.Or(host, dialled)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()

	dialling, stopDialling := context.WithTimeout(ctx, p.opts.DialTimeout)
	raw, err := p.reach(dialling, address)
	stopDialling()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeoutCause(ctx, p.opts.HandshakeTimeout, errNoAnswer)
	defer stop()
	release := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer release()
	c, err := p.introduce(ctx, raw, k, host, address)
	if err == nil && !release() {
		_ = c.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		if p.ctx.Err() == nil {
			p.distrusted(raw.RemoteAddr(), true, err)
		}
		_ = raw.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", errSaysNothing, context.Cause(ctx))
		}
		return nil, err
	}
	p.trusted(raw.RemoteAddr())
	return c, nil
}

// introduce does TLS and the preamble.
func (p *Port) introduce(ctx context.Context, raw net.Conn, k Kind, host, address string) (*conn, error) {
	stream := raw
	if p.opts.Security != nil {
		config := p.opts.Security.Client(host)
		if config == nil {
			return nil, errors.New("no certificate for connections between nodes")
		}
		config = judging(config)
		config.ClientSessionCache = nil
		if config.ServerName == "" {
			config.ServerName = host
		}
		secured := tls.Client(raw, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, explain(err, address)
		}
		stream = secured
	}
	self := p.self()
	q := request{version: formatVersion, kind: k, proves: p.opts.Secret != nil, Identity: self}
	if _, err := stream.Write(q.encode()); err != nil {
		return nil, fmt.Errorf("send request: %w", err)
	}
	a, err := p.hear(stream, &q)
	if err != nil {
		return nil, err
	}
	if a.status != StatusAccepted {
		return nil, &RefusedError{Address: address, Status: a.status, Reason: a.reason, Peer: a.Identity}
	}
	if a.version != formatVersion {
		return nil, fmt.Errorf("the other node speaks version %d of the protocol between nodes, this one %d", a.version, formatVersion)
	}
	// A node of the version before does not look at it itself.
	if r := sameIncarnation(k, a.Identity, address, self); r != nil {
		return nil, &RefusedError{Address: address, Status: r.status, Reason: r.reason, Peer: a.Identity}
	}
	c := &conn{Conn: stream, raw: raw, port: p, kind: k, peer: a.Identity, id: event.ID(uuid.New()), due: time.Now().Add(jittered(p.opts.Renew))}
	if p.add(c) != nil {
		return nil, errClosing
	}
	return c, nil
}

// hear reads the answer to a request. A node that must prove its user is not trusted before it has
// done so.
func (p *Port) hear(stream net.Conn, q *request) (answer, error) {
	a, err := readAnswer(stream)
	if err != nil {
		return a, fmt.Errorf("read answer: %w", err)
	}
	switch {
	case p.opts.Secret == nil:
		return a, nil
	case a.status == StatusAccepted:
		a.status, a.reason = StatusUnproven, "this node talks to nodes of its own user only, and the other offers no proof: it runs with Insecure, or is of an earlier version"
		return a, nil
	case a.status != StatusProve:
		return a, nil // refused before anything else
	}
	ours, err := p.prove(stream, q)
	if err != nil {
		return a, err
	}
	var heard bytes.Buffer
	if a, err = readAnswer(io.TeeReader(stream, &heard)); err != nil {
		return a, fmt.Errorf("read answer: %w", err)
	}
	if a.status == StatusUnproven {
		return a, nil // It does not believe this node, and shows it nothing.
	}
	if err := ours.answered(stream, heard.Bytes()); err != nil {
		return a, fmt.Errorf("read proof: %w", err)
	}
	return a, nil
}

// explain makes an error of TLS that stems from a plain port one that says so.
func explain(err error, address string) error {
	record, ok := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case !ok:
		return fmt.Errorf("TLS: %w", err)
	case string(record.RecordHeader[:]) == magic[:len(record.RecordHeader)]:
		return &RefusedError{Address: address, Status: StatusWantsPlain,
			Reason: "that node is configured for plain TCP between nodes, this one for TLS"}
	}
	return fmt.Errorf("TLS: the other side speaks something else: %w", err)
}
