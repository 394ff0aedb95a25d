package certs

import "crypto/x509"

// IsNode says whether a certificate whose chain was verified is that of a node.
func IsNode(c *x509.Certificate, reserved string) bool {
	return whyNoNode(c, reserved, nodeUsages) == nil
}
