package wire

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/annalsdb/annals/replication/peersecret"
)

// Parts of the proof. Do not change.
const (
	nonceSize   = 32
	addressSize = 18 // IPv6 or mapped IPv4, port
	codeSize    = 32
	maxPath     = 4096

	byDialler  = "annals dialler"
	byAcceptor = "annals acceptor"
)

// challenge follows an answer of StatusProve.
type challenge struct {
	nonce  [nonceSize]byte
	secret peersecret.ID // of the acceptor
	file   string        // where it lies
}

func (c *challenge) encode() []byte {
	b := append(c.nonce[:nonceSize:nonceSize], c.secret[:]...)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(c.file))), c.file...)
}

func readChallenge(r io.Reader) (c challenge, err error) {
	var b [nonceSize + peersecret.IDSize + 2]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return c, unexpected(err)
	}
	c.nonce, c.secret = [nonceSize]byte(b[:]), peersecret.ID(b[nonceSize:])
	length := binary.BigEndian.Uint16(b[nonceSize+peersecret.IDSize:])
	if length > maxPath {
		return c, errNotOurs
	}
	file := make([]byte, length)
	if _, err := io.ReadFull(r, file); err != nil {
		return c, unexpected(err)
	}
	c.file = string(file)
	return c, nil
}

// proof is the exchange by which the two sides of a connection authenticate each other.
type proof struct {
	secret *peersecret.Secret
	// all that was said before the codes: the request, the challenge, nonce and address of the
	// dialler
	about []byte
}

// code is that of one side, and for the acceptor also of the answer that it ends with.
func (p *proof) code(side string, answer ...byte) []byte {
	return p.secret.Code([]byte(side), p.about, answer)
}

func (p *proof) proves(code []byte, side string, answer ...byte) bool {
	return p.secret.Proves(code, []byte(side), p.about, answer)
}

// demand has the side that dialled prove that it knows this node's secret.
func (p *Port) demand(ctx context.Context, stream net.Conn, self Identity, q *request) (*proof, error) {
	if !q.proves {
		return nil, p.refuse(stream, self, q, &refusal{status: StatusUnproven, reason: "this node takes connections of processes of its own user only, " +
			"and the other offers no proof: it runs with Insecure, or is of an earlier version"})
	}
	c := challenge{secret: p.opts.Secret.ID(), file: p.opts.Secret.File()}
	if _, err := rand.Read(c.nonce[:]); err != nil {
		return nil, err
	}
	a := answer{version: formatVersion, status: StatusProve, Identity: self, reason: "this node wants a proof first"}
	asked := c.encode()
	if _, err := stream.Write(append(a.encode(), asked...)); err != nil {
		return nil, fmt.Errorf("challenge: %w", err)
	}
	var b [nonceSize + addressSize + codeSize]byte
	if _, err := io.ReadFull(stream, b[:]); err != nil {
		return nil, unexpected(err)
	}
	said := b[:nonceSize+addressSize]
	ours := &proof{secret: p.opts.Secret, about: slices.Concat(q.encode(), asked, said)}
	if !ours.proves(b[len(said):], byDialler) {
		return nil, p.refuse(stream, self, q, &refusal{status: StatusUnproven, reason: "the other side does not know this node's secret"})
	}
	// It knows the secret, and dialled whom? Another process may have passed on what it heard from
	// either side.
	dialled := netip.AddrPortFrom(netip.AddrFrom16([16]byte(said[nonceSize:])).Unmap(), binary.BigEndian.Uint16(said[nonceSize+16:]))
	if !p.isAt(ctx, stream, dialled) {
		return nil, p.refuse(stream, self, q, &refusal{status: StatusUnproven, reason: fmt.Sprintf(
			"the other side dialled %s, which is not an address of this node: something between them forwards connections", dialled)})
	}
	return ours, nil
}

// isAt reports whether an address is this node's: the one where the connection arrived, or the
// advertised one.
func (p *Port) isAt(ctx context.Context, stream net.Conn, dialled netip.AddrPort) bool {
	if addressOf(stream.LocalAddr()) == dialled {
		return true
	}
	host, port, err := net.SplitHostPort(p.opts.Advertise)
	if err != nil || port != fmt.Sprint(dialled.Port()) {
		return false
	}
	found, err := p.Lookup(ctx, host)
	return err == nil && slices.ContainsFunc(found, func(ip netip.Addr) bool { return ip.Unmap() == dialled.Addr() })
}

// addressOf is an address without a zone; that of something else than TCP is invalid.
func addressOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// prove answers a challenge, and returns what the other side's answer is to be judged by.
func (p *Port) prove(stream net.Conn, q *request) (*proof, error) {
	c, err := readChallenge(stream)
	if err != nil {
		return nil, fmt.Errorf("read challenge: %w", err)
	}
	ours := new(proof)
	if ours.secret, err = p.secrets.of(p.opts.Secret, &c); err != nil {
		return nil, err
	}
	said := make([]byte, nonceSize, nonceSize+addressSize+codeSize)
	if _, err := rand.Read(said); err != nil {
		return nil, err
	}
	at := addressOf(stream.RemoteAddr())
	if !at.IsValid() {
		return nil, errors.New("a proof is for TCP only")
	}
	ip := at.Addr().As16()
	said = binary.BigEndian.AppendUint16(append(said, ip[:]...), at.Port())
	ours.about = slices.Concat(q.encode(), c.encode(), said)
	if _, err := stream.Write(append(said, ours.code(byDialler)...)); err != nil {
		return nil, fmt.Errorf("send proof: %w", err)
	}
	return ours, nil
}

// sealed appends to an answer what shows that it is this node's; without a proof nothing.
func (p *proof) sealed(answer []byte) []byte {
	if p == nil {
		return answer
	}
	return append(answer, p.code(byAcceptor, answer...)...)
}

// answered reads what shows that an answer is of a node that knows the secret.
func (p *proof) answered(stream io.Reader, answer []byte) error {
	var code [codeSize]byte
	if _, err := io.ReadFull(stream, code[:]); err != nil {
		return unexpected(err)
	}
	if !p.proves(code[:], byAcceptor, answer...) {
		return errors.New("the other side does not know the secret that it named")
	}
	return nil
}

// maxSecrets bounds the secrets that are remembered.
const maxSecrets = 64

// secrets are those of other nodes that were read, by how challenges name them.
type secrets struct {
	mu    sync.Mutex // held for a moment only, and nests no other lock
	known map[peersecret.ID]*peersecret.Secret
}

// of returns the secret that a challenge is about: this node's own, of which the other has a copy,
// or the one in the file that the other names.
func (s *secrets) of(own *peersecret.Secret, c *challenge) (*peersecret.Secret, error) {
	if c.secret == own.ID() {
		return own, nil
	}
	s.mu.Lock()
	known := s.known[c.secret]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	read, err := own.Other(c.file)
	if err == nil && read.ID() != c.secret {
		err = fmt.Errorf("%q holds another secret", c.file)
	}
	if err != nil {
		return nil, fmt.Errorf("the secret of that node cannot be read (%w). Nodes without certificates trust each other "+
			"only if one user runs them on one machine, or if the file %s of one is copied to the data folders of all, "+
			"each readable by its node's user alone", err, peersecret.FileName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxSecrets {
		clear(s.known)
	}
	s.known[c.secret] = read
	return read, nil
}
