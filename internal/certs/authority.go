package certs

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/annalsdb/annals/internal/vfs"
)

// DefaultNodeCommonName is the common name of nodes unless another is chosen. EventStoreDB's tools
// use the same.
const DefaultNodeCommonName = "eventstoredb-node"

// The names of the files that hold certificates and keys.
const (
	AuthorityCertificateFile = "ca.crt"
	AuthorityKeyFile         = "ca.key"
	NodeCertificateFile      = "node.crt"
	NodeKeyFile              = "node.key"
)

const (
	defaultAuthorityDays = 5 * 365
	defaultNodeDays      = 365
	maxDays              = 100 * 365
	maxCommonNameBytes   = 64 // ub-common-name of RFC 5280
)

// backdate is how long before it is made a certificate becomes valid, for nodes
// whose clocks are behind.
const backdate = time.Hour

// A KeyKind is the kind and size of a private key.
type KeyKind string

// The kinds of keys.
const (
	// RSA2048 is the default: every client and EventStoreDB's tools work with it.
	RSA2048   KeyKind = "rsa-2048"
	RSA4096   KeyKind = "rsa-4096"
	ECDSAP256 KeyKind = "ecdsa-p256"
)

// generate makes a private key.
func (k KeyKind) generate() (crypto.Signer, error) {
	switch k {
	case RSA2048:
		return rsa.GenerateKey(rand.Reader, 2048)
	case RSA4096:
		return rsa.GenerateKey(rand.Reader, 4096)
	case ECDSAP256:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	return nil, fmt.Errorf("unknown kind of key %q: it is %s, %s or %s", string(k), RSA2048, RSA4096, ECDSAP256)
}

// AuthorityOptions are the options of an Authority. The zero value works.
type AuthorityOptions struct {
	// CommonName names the authority. Default: a name with a part of the key's digest,
	// so that two authorities are not taken for one.
	CommonName string
	// Days is how long it is valid. Default: five years.
	Days int
	// Key is the kind of its private key. Default: RSA2048.
	Key KeyKind
}

// An Authority is a self-signed certificate with its key, and issues
// certificates for nodes.
type Authority struct {
	Certificate *x509.Certificate
	key         crypto.Signer
}

// NewAuthority makes an authority.
func NewAuthority(o AuthorityOptions) (*Authority, error) {
	o.Days, o.Key = cmp.Or(o.Days, defaultAuthorityDays), cmp.Or(o.Key, RSA2048)
	if err := errors.Join(checkDays(o.Days), checkCommonName(o.CommonName)); err != nil {
		return nil, err
	}
	key, err := o.Key.generate()
	if err != nil {
		return nil, err
	}
	if o.CommonName == "" {
		public, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			return nil, fmt.Errorf("encode the authority's key: %w", err)
		}
		digest := sha256.Sum256(public)
		o.CommonName = "Annals CA " + hex.EncodeToString(digest[:4])
	}
	now := time.Now()
	c, err := sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: o.CommonName},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.AddDate(0, 0, o.Days),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}, nil, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &Authority{Certificate: c, key: key}, nil
}

// LoadAuthority reads an authority from the folder that Write, or one of EventStoreDB's tools,
// wrote it to.
func LoadAuthority(dir string) (*Authority, error) {
	certificateFile, keyFile := filepath.Join(dir, AuthorityCertificateFile), filepath.Join(dir, AuthorityKeyFile)
	found, err := parseFile(vfs.OS, certificateFile, parseCertificates)
	if err != nil {
		return nil, fmt.Errorf("%s %w", certificateFile, err)
	}
	key, err := parseFile(vfs.OS, keyFile, func(data []byte) (crypto.Signer, error) { return parseKey(data, "") })
	if err != nil {
		return nil, fmt.Errorf("%s %w", keyFile, err)
	}
	c, now := found[0], time.Now()
	switch {
	case !belongs(key, c):
		return nil, fmt.Errorf("%s is not the key of %s", keyFile, certificateFile)
	case !c.IsCA || !selfSigned(c):
		return nil, fmt.Errorf("%s is not the certificate of a root authority", certificateFile)
	case now.After(c.NotAfter):
		return nil, fmt.Errorf("the authority in %s expired on %s: make a new one", certificateFile, day(c.NotAfter))
	}
	return &Authority{Certificate: c, key: key}, nil
}

// Write writes the authority's two files into a folder, which is made if it is
// not there. Without force it fails with fs.ErrExist rather than overwrite.
func (a *Authority) Write(dir string, force bool) error {
	return writePair(dir, AuthorityCertificateFile, AuthorityKeyFile, a.Certificate, a.key, force)
}

// NodeOptions are the options of a node's certificate. At least one DNS name or
// IP address is needed.
type NodeOptions struct {
	// CommonName is the name that all nodes of a cluster share. Default: DefaultNodeCommonName.
	CommonName string
	// DNSNames and IPs are what others dial. A name may begin with *. for any one label.
	DNSNames []string
	IPs      []netip.Addr
	// Days is how long the certificate is valid. Default: a year, or as long as the
	// authority if that is shorter.
	Days int
	// For is how long it is valid in place of Days, for tests of its end.
	For time.Duration
	// Key is the kind of its private key. Default: RSA of 2048 bits or ECDSA, as the authority's.
	Key KeyKind
}

// Localhost are the options of a certificate for this machine.
var Localhost = NodeOptions{
	DNSNames: []string{"localhost"}, IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()},
}

// Validate says what is wrong with the options.
func (o *NodeOptions) Validate() error {
	err := errors.Join(checkCommonName(o.CommonName), checkDays(o.Days))
	for _, name := range o.DNSNames {
		err = errors.Join(err, checkDNSName(name))
	}
	if len(o.DNSNames)+len(o.IPs) == 0 {
		err = errors.Join(err, errors.New("a node's certificate needs at least one DNS name or IP address"))
	}
	return err
}

// An Issued is a node's certificate with its key.
type Issued struct {
	Certificate *x509.Certificate
	key         crypto.Signer
}

// Issue makes a certificate for a node.
func (a *Authority) Issue(o NodeOptions) (*Issued, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.CommonName = cmp.Or(o.CommonName, DefaultNodeCommonName)
	if o.Key == "" {
		o.Key = RSA2048
		if _, ok := a.key.(*ecdsa.PrivateKey); ok {
			o.Key = ECDSAP256
		}
	}
	now := time.Now()
	from, to := now.Add(-backdate), now.AddDate(0, 0, defaultNodeDays)
	if from.Before(a.Certificate.NotBefore) {
		from = a.Certificate.NotBefore
	}
	if o.Days != 0 {
		to = now.AddDate(0, 0, o.Days)
	}
	if o.For != 0 {
		to = now.Add(o.For)
	}
	if end := a.Certificate.NotAfter; to.After(end) {
		// A time that was named and cannot be is an error. The hours between making an
		// authority and its first node do not count.
		if o.Days != 0 && to.Sub(end) > 24*time.Hour {
			return nil, fmt.Errorf("a certificate of %d days would outlive its authority, which ends on %s", o.Days, day(end))
		}
		to = end
	}
	key, err := o.Key.generate()
	if err != nil {
		return nil, err
	}
	ips := make([]net.IP, len(o.IPs))
	for i, ip := range o.IPs {
		ips[i] = ip.WithZone("").AsSlice()
	}
	usage := x509.KeyUsageDigitalSignature
	if _, ok := key.(*rsa.PrivateKey); ok {
		usage |= x509.KeyUsageKeyEncipherment
	}
	c, err := sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: o.CommonName},
		NotBefore:             from,
		NotAfter:              to,
		KeyUsage:              usage,
		ExtKeyUsage:           nodeUsages,
		BasicConstraintsValid: true,
		DNSNames:              o.DNSNames,
		IPAddresses:           ips,
	}, a.Certificate, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return &Issued{Certificate: c, key: key}, nil
}

// Write writes the two files of a node into a folder, like Authority.Write.
func (i *Issued) Write(dir string, force bool) error {
	return writePair(dir, NodeCertificateFile, NodeKeyFile, i.Certificate, i.key, force)
}

// PEM returns the certificate and its key in PEM form.
func (i *Issued) PEM() (certificate, key []byte, err error) { return encodePair(i.Certificate, i.key) }

// PEM returns the certificate of the authority in PEM form.
func (a *Authority) PEM() []byte { return encodeCertificate(a.Certificate) }

// Set returns an issued certificate as a Set that trusts its authority alone.
func (a *Authority) Set(i *Issued) *Set {
	set := &Set{
		Certificate: tls.Certificate{Leaf: i.Certificate, PrivateKey: i.key, Certificate: [][]byte{i.Certificate.Raw}},
		Chain:       []*x509.Certificate{i.Certificate, a.Certificate},
		Roots:       x509.NewCertPool(),
		RootCount:   1,
		ReservedCN:  i.Certificate.Subject.CommonName,
		Expires:     ends([]*x509.Certificate{i.Certificate, a.Certificate}).NotAfter,
	}
	set.Roots.AddCert(a.Certificate)
	set.acceptable = set.Roots
	return set
}

// Temporary makes an authority and one certificate of it in memory, for the nodes of a development
// cluster, which share it. It is for localhost. The keys are never written anywhere.
func Temporary() (*Set, error) {
	// Quick to make, and no foreign tool has to read it.
	a, err := NewAuthority(AuthorityOptions{Key: ECDSAP256})
	if err != nil {
		return nil, err
	}
	issued, err := a.Issue(Localhost)
	if err != nil {
		return nil, err
	}
	return a.Set(issued), nil
}

// sign makes a certificate, self-signed if there is no parent. Its serial number is random.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the new certificate: %w", err)
	}
	return c, nil
}

// writePair writes the key before the certificate, so a crash never leaves a certificate whose key
// is lost.
func writePair(dir, certificateFile, keyFile string, c *x509.Certificate, key crypto.Signer, force bool) error {
	certificatePEM, keyPEM, err := encodePair(c, key)
	if err != nil {
		return err
	}
	return writeFiles(dir, force,
		newFile{name: keyFile, permission: keyPermission, data: keyPEM},
		newFile{name: certificateFile, permission: certificatePermission, data: certificatePEM})
}

// encodePair returns certificate and key in PEM form.
func encodePair(c *x509.Certificate, key crypto.Signer) (certificatePEM, keyPEM []byte, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a private key: %w", err)
	}
	return encodeCertificate(c), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func encodeCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func checkDays(days int) error {
	if days < 0 || days > maxDays {
		return fmt.Errorf("%d days: a certificate is valid for 1 to %d days", days, maxDays)
	}
	return nil
}

func checkCommonName(name string) error {
	if len(name) > maxCommonNameBytes {
		return fmt.Errorf("the common name %q is longer than %d bytes", name, maxCommonNameBytes)
	}
	return nil
}

// checkDNSName refuses what no client would match.
func checkDNSName(name string) error {
	if _, err := netip.ParseAddr(name); err == nil {
		return fmt.Errorf("%s is an IP address, not a DNS name", name)
	}
	bad := fmt.Errorf("%q is not a DNS name", name)
	if len(name) > 253 {
		return bad
	}
	for label := range strings.SplitSeq(strings.TrimPrefix(name, "*."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return bad
		}
		for _, c := range []byte(label) {
			switch {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
			default:
				return bad
			}
		}
	}
	return nil
}
