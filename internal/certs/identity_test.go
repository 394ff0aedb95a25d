package certs_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"testing"

	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/check"
)

func TestNodeNames(t *testing.T) {
	cases := []struct {
		name, reserved string
		want           bool
	}{
		{"eventstoredb-node", "eventstoredb-node", true},
		{"EventStoreDB-Node", "eventstoredb-node", true},
		{"node", "eventstoredb-node", false},
		{"eventstoredb-node.x", "eventstoredb-node", false},
		{"", "", false},
		{"", "node", false},
		{"node", "", false},
		// A pattern stands for exactly one first label, before two others or more.
		{"node1.example.com", "*.example.com", true},
		{"NODE1.Example.com", "*.eXample.com", true},
		{"node1.eu.example.com", "*.eu.example.com", true},
		{"node1.eu.example.com", "*.example.com", false},
		{"example.com", "*.example.com", false},
		{".example.com", "*.example.com", false},
		{"node1.example.org", "*.example.com", false},
		{"node1.xexample.com", "*.example.com", false},
		{"node1.com", "*.com", false},
		{"node1", "*", false},
		{"a.b.c", "*.*.c", false},
		{"a.b.c", "a.*.c", false},
		{"node1.example.com", "node*.example.com", false},
		{"a..com", "*..com", false},
		{"a.com.", "*.com.", false},
		// A name with an asterisk equals itself alone.
		{"*.example.com", "*.example.com", true},
		{"*.EXAMPLE.com", "*.example.com", true},
		{"*.example.com", "node1.example.com", false},
		{"*.eu.example.com", "*.example.com", false},
		{"*.b.example.com", "*.b.example.com", true},
		{"x*.example.com", "*.example.com", false},
		// Addresses are equal or not.
		{"10.0.0.1", "10.0.0.1", true},
		{"10.0.0.1", "10.0.0.2", false},
		{"10.0.0.1", "*.0.0.1", false},
		{"::1", "0:0:0:0:0:0:0:1", true},
		{"::ffff:10.0.0.1", "10.0.0.1", false},
		// Letters that look alike are not equal.
		{"\u212aafka", "kafka", false},
		{"NODE\xff", "node\xfe", false},
	}
	for _, c := range cases {
		leaf := &x509.Certificate{Subject: pkix.Name{CommonName: c.name}, DNSNames: []string{"x"}}
		if got := certs.IsNode(leaf, c.reserved); got != c.want {
			t.Errorf("%q with reserved name %q: %t", c.name, c.reserved, got)
		}
	}
}

func TestNodeNeedsAddressAndUsage(t *testing.T) {
	link := check.Value(url.Parse("spiffe://x/node")).Must(t)
	server, client := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	cases := []struct {
		name   string
		change func(*x509.Certificate)
		want   bool
	}{
		{"dns", func(*x509.Certificate) {}, true},
		{"ip", forHosts(nil, net.IPv4(10, 0, 0, 1)), true},
		{"neither", forHosts(nil), false},
		{"other kinds of names", func(c *x509.Certificate) {
			forHosts(nil)(c)
			c.URIs, c.EmailAddresses = []*url.URL{link}, []string{"a@b"}
		}, false},
		{"both usages", forUse(client, server), true},
		{"server", forUse(server), false},
		{"client", forUse(client), false},
		{"any", forUse(x509.ExtKeyUsageAny), true},
		{"neither usage", forUse(x509.ExtKeyUsageCodeSigning), false},
	}
	for _, c := range cases {
		leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "node"}, DNSNames: []string{"x"}}
		c.change(leaf)
		check.Equal(t, certs.IsNode(leaf, "node"), c.want, c.name)
	}
}
