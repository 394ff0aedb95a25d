package certs

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors with which the other side of a connection is refused. The first is spelled as clients and
// operators know it from EventStoreDB.
var (
	// ErrChain says that the certificate does not chain to a trusted root.
	ErrChain = errors.New("RemoteCertificateChainErrors")
	// ErrNotNode says that the certificate is trusted, but is not that of a node.
	ErrNotNode = errors.New("the certificate is not that of a node")
	// ErrHost says that the certificate was issued for another host than was dialled.
	ErrHost = errors.New("the certificate does not match the host")
)

// chains builds all chains from the first certificate to a trusted root. The
// other certificates may help, and so may our own intermediates: peers often
// send theirs alone.
func (s *Set) chains(presented []*x509.Certificate, now time.Time) ([][]*x509.Certificate, error) {
	// Verify would take nil for the store of the operating system.
	roots := cmp.Or(s.Roots, x509.NewCertPool())
	helpers := x509.NewCertPool()
	for _, c := range slices.Concat(presented[1:], s.intermediates) {
		helpers.AddCert(c)
	}
	return presented[0].Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: helpers,
		CurrentTime:   now,
		// Verify would be content with one usage of several. See withUsages.
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
}

// withUsages returns the chains of which every certificate allows all the usages.
func withUsages(chains [][]*x509.Certificate, usages ...x509.ExtKeyUsage) [][]*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(chains), func(chain []*x509.Certificate) bool {
		return slices.ContainsFunc(chain, func(c *x509.Certificate) bool { return !allows(c, usages...) })
	})
}

// verify checks the certificates that the other side presented, and returns an
// error that wraps ErrChain.
func (s *Set) verify(presented []*x509.Certificate, now time.Time, usages ...x509.ExtKeyUsage) error {
	leaf := presented[0]
	chains, err := s.chains(presented, now)
	if err == nil && len(withUsages(chains, usages...)) == 0 {
		err = x509.CertificateInvalidError{Cert: leaf, Reason: x509.IncompatibleUsage}
	}
	if err != nil {
		return fmt.Errorf("%w (%s): the certificate %q issued by %q is refused: %w",
			ErrChain, chainStatus(err), leaf.Subject, leaf.Issuer, err)
	}
	return nil
}

// usages are what certificates of nodes must allow.
func (s *Set) usages() []x509.ExtKeyUsage { return usagesOf(s.ServerOnly) }

// verifyNode checks that the other side is a node.
func (s *Set) verifyNode(presented []*x509.Certificate, now time.Time) error {
	if len(presented) == 0 {
		return fmt.Errorf("%w: none was presented", ErrNotNode)
	}
	if err := s.verify(presented, now, s.usages()...); err != nil {
		return err
	}
	if why := whyNoNode(presented[0], s.ReservedCN, s.usages()); why != nil {
		return fmt.Errorf("%w: %q: %w", ErrNotNode, presented[0].Subject, why)
	}
	return nil
}

const statusNotTimeValid = "NotTimeValid"

// chainStatus names the cause as EventStoreDB does.
func chainStatus(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		switch invalid.Reason {
		case x509.Expired:
			return statusNotTimeValid
		case x509.IncompatibleUsage:
			return "NotValidForUsage"
		case x509.NotAuthorizedToSign, x509.TooManyIntermediates:
			return "InvalidBasicConstraints"
		case x509.CANotAuthorizedForThisName:
			return "InvalidNameConstraints"
		}
	}
	return "PartialChain"
}

// ends returns the certificate of a chain that ends first.
func ends(chain []*x509.Certificate) *x509.Certificate {
	return slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
}

// lasting returns the chain that stays valid longest.
func lasting(chains [][]*x509.Certificate) []*x509.Certificate {
	return slices.MaxFunc(chains, func(a, b []*x509.Certificate) int { return ends(a).NotAfter.Compare(ends(b).NotAfter) })
}

// soon is how long before its end a certificate is warned about.
const soon = 30 * 24 * time.Hour

// Expiring says what of a Set has ended, or ends within 30 days. What a node
// warned of at its start is worth saying again as the end comes nearer.
func (s *Set) Expiring(now time.Time) []Finding {
	return append(expiringNode(s.file, s.Chain[0], now), expiringAuthority(s.file, s.Chain, now)...)
}

// NodeExpires is the end of the node's own certificate.
func (s *Set) NodeExpires() time.Time { return s.Chain[0].NotAfter }

// AuthorityExpires is the end of what stands above it: of the first to end.
func (s *Set) AuthorityExpires() time.Time {
	if len(s.Chain) == 1 {
		return s.Chain[0].NotAfter // It is its own root.
	}
	return ends(s.Chain[1:]).NotAfter
}

// expiringNode judges the end of the node's own certificate.
func expiringNode(file string, leaf *x509.Certificate, now time.Time) []Finding {
	return ending(file, "", leaf.NotAfter, now, "renew the certificate")
}

// expiringAuthority judges the chain above it, unless the node's own certificate ends before.
func expiringAuthority(file string, chain []*x509.Certificate, now time.Time) []Finding {
	first := ends(chain)
	if first == chain[0] {
		return nil
	}
	return ending(file, fmt.Sprintf("the authority %q above it ", first.Subject), first.NotAfter, now, "renew the authority, then the certificates it issued")
}

// ending judges the end of something that has a name, or none when it is the file itself.
func ending(file, name string, end, now time.Time, remedy string) []Finding {
	switch {
	case now.After(end):
		return []Finding{{SeverityError, file, name + "expired on " + day(end), remedy}}
	case end.Sub(now) <= soon:
		return []Finding{{SeverityWarning, file, name + "expires on " + day(end), remedy}}
	}
	return nil
}
