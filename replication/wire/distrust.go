package wire

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/logkey"
)

// distrustError is why this node refuses the certificate of another one.
type distrustError struct{ error }

func (e *distrustError) Unwrap() error { return e.error }

// judging returns a copy of a configuration that marks its own refusals of certificates.
func judging(config *tls.Config) *tls.Config {
	config = config.Clone()
	if verify := config.VerifyConnection; verify != nil {
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if err := verify(state); err != nil {
				return &distrustError{err}
			}
			return nil
		}
	}
	if choose := config.GetConfigForClient; choose != nil {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if err != nil || chosen == nil {
				return chosen, err
			}
			return judging(chosen), nil
		}
	}
	return config
}

// distrust is a certificate that was refused between this node and another one.
type distrust struct {
	host string // of the other node
	text string
	at   time.Time
}

// distrustFor is how long a refusal counts: nodes that miss each other try again sooner.
const distrustFor = 3 * time.Minute

// What to do about it.
const (
	remedyForPeer = "annals certs check on both: neither may have expired, and the authority of that node's CertificateFile must be in this node's TrustedRootCertificatesPath"
	remedyForOurs = "annals certs check on both: neither may have expired, and the authority of this node's CertificateFile must be in that node's TrustedRootCertificatesPath"
)

// distrusted says whether a connection failed because one side refuses the other's certificate. It
// logs that, at most once a minute for each host, and notes it of a host that this node dialed: any
// other one may be no node.
func (p *Port) distrusted(peer net.Addr, dialed bool, err error) bool {
	_, ours := errors.AsType[*distrustError](err)
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	if !ours && !verification {
		alert, ok := errors.AsType[*net.OpError](err)
		if !ok || alert.Op != "remote error" || !strings.Contains(alert.Err.Error(), "certificate") {
			return false
		}
		p.note(peer, dialed, "the node at "+peer.String()+" refuses the certificate of this node: "+err.Error())
		p.say(hclog.Warn, peer, "ours", "another node refuses the certificate of this node", logkey.Reason, err, "remedy", remedyForOurs)
		return true
	}
	p.note(peer, dialed, "this node refuses the certificate of the node at "+peer.String()+": "+err.Error())
	p.say(hclog.Warn, peer, "theirs", "this node refuses the certificate of another node", logkey.Reason, err, "remedy", remedyForPeer)
	return true
}

func (p *Port) note(peer net.Addr, dialed bool, text string) {
	if dialed {
		p.distrust.Store(&distrust{hostOf(peer), text, time.Now()})
	}
}

// trusted notes that a connection with a node came about.
func (p *Port) trusted(peer net.Addr) {
	if d := p.distrust.Load(); d != nil && d.host == hostOf(peer) {
		p.distrust.CompareAndSwap(d, nil)
	}
}

// Distrust says which certificate was refused of late between this node and another one; empty:
// none.
func (p *Port) Distrust() string {
	if d := p.distrust.Load(); d != nil && time.Since(d.at) < distrustFor {
		return d.text
	}
	return ""
}

func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
