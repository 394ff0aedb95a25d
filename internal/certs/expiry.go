package certs

import (
	"crypto/x509"
	"fmt"
	"time"
)

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
	const remedy = "renew the certificate"
	switch {
	case now.After(leaf.NotAfter):
		return []Finding{{SeverityError, file, fmt.Sprintf("expired on %s", day(leaf.NotAfter)), remedy}}
	case leaf.NotAfter.Sub(now) <= soon:
		return []Finding{{SeverityWarning, file, fmt.Sprintf("expires on %s", day(leaf.NotAfter)), remedy}}
	}
	return nil
}

// expiringAuthority judges the chain above it, unless the node's own certificate ends before.
func expiringAuthority(file string, chain []*x509.Certificate, now time.Time) []Finding {
	const remedy = "renew the authority, then the certificates it issued"
	first := ends(chain)
	switch {
	case first == chain[0]:
	case now.After(first.NotAfter):
		return []Finding{{SeverityError, file, fmt.Sprintf("the authority %q above it expired on %s", first.Subject, day(first.NotAfter)), remedy}}
	case first.NotAfter.Sub(now) <= soon:
		return []Finding{{SeverityWarning, file, fmt.Sprintf("the authority %q above it expires on %s", first.Subject, day(first.NotAfter)), remedy}}
	}
	return nil
}
