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
