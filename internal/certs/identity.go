package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// nodeUsages are what a node's certificate must allow, because a node is server
// to some of its peers and client to others.
var nodeUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

// usagesOf returns them, or the first one alone where the operator demands no more.
func usagesOf(serverOnly bool) []x509.ExtKeyUsage {
	if serverOnly {
		return nodeUsages[:1]
	}
	return nodeUsages
}

// authentication names the usages of a node for an operator.
func authentication(usages []x509.ExtKeyUsage) string {
	if len(usages) == 1 {
		return "server authentication"
	}
	return "both server and client authentication"
}

// whyNoNode returns nil for the certificate of a node, given one whose chain was verified: its
// common name matches the reserved one, it has at least one DNS name or IP address as alternative
// name, and it allows the usages if it restricts its usage. An empty reserved name matches nothing.
//
// A common name with an asterisk equals only the same reserved name. Otherwise
// the reserved name is a pattern: *.example.com stands for any one first label
// before two or more others. Letter case does not matter, and IP addresses are equal or not.
func whyNoNode(c *x509.Certificate, reserved string, usages []x509.ExtKeyUsage) error {
	switch {
	case !matchesCommonName(c.Subject.CommonName, reserved):
		return fmt.Errorf("its common name %q does not match the reserved name %q", c.Subject.CommonName, reserved)
	case !hasAddress(c):
		return errors.New("it has neither a DNS name nor an IP address as alternative name")
	case !allows(c, usages...):
		return errors.New("its extended key usage does not allow " + authentication(usages))
	}
	return nil
}

func hasAddress(c *x509.Certificate) bool { return len(c.DNSNames)+len(c.IPAddresses) > 0 }

// allows says whether a certificate may be used in all these ways. Without the
// extension it may be used in any.
func allows(c *x509.Certificate, usages ...x509.ExtKeyUsage) bool {
	if len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return true
	}
	return !slices.ContainsFunc(usages, func(u x509.ExtKeyUsage) bool { return !slices.Contains(c.ExtKeyUsage, u) })
}

func matchesCommonName(name, reserved string) bool {
	name, reserved = lower(name), lower(reserved)
	if name == "" || reserved == "" || name == reserved {
		return name != "" && reserved != ""
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		other, err := netip.ParseAddr(reserved)
		return err == nil && ip == other
	}
	suffix, isPattern := strings.CutPrefix(reserved, "*.")
	if !isPattern || strings.Contains(name, "*") {
		return false
	}
	labels := strings.Split(suffix, ".")
	if len(labels) < 2 || slices.Contains(labels, "") {
		return false
	}
	first, others, _ := strings.Cut(name, ".")
	return first != "" && others == suffix
}

// lower folds ASCII letters only: by Unicode's rules, letters that look alike
// would be equal.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// matchesHost says whether a node's certificate was issued for a host, a DNS name or an IP address
// without a port. A node's certificate has alternative names, so its common name does not count.
func matchesHost(c *x509.Certificate, host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.WithZone("").String()
	}
	return c.VerifyHostname(host) == nil
}

// NamesOf lists the alternative names that identify a host.
func NamesOf(c *x509.Certificate) []string {
	names := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}
