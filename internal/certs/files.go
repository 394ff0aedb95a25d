package certs

import (
	"crypto"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/annalsdb/annals/internal/vfs"
)

// minRSABits is the size of an RSA key below which peers may refuse it.
const minRSABits = 2048

// Files names what a node's operator configured.
type Files struct {
	// Certificate is a PKCS#12 bundle, or the node's X.509 certificate in PEM or DER form, with its
	// intermediates after it in the same file.
	Certificate string
	// PrivateKey is the key of an X.509 certificate: PKCS#1, SEC 1 or PKCS#8, in PEM or
	// DER form. It may be the file of the certificate. A PKCS#12 bundle has its own.
	PrivateKey string
	// Password opens a PKCS#12 bundle.
	Password string
	// KeyPassword opens an encrypted PKCS#8 key.
	KeyPassword string
	// RootsDir is the folder of the trusted roots: every file that ends in .crt,
	// .cert, .cer, .pem or .der, in any letter case.
	RootsDir string
	// ReservedCN is the pattern that the common names of nodes match; see whyNoNode.
	// Empty: the common name of this certificate.
	ReservedCN string
	// ServerOnly takes certificates of nodes, this one's included, that allow server authentication
	// alone.
	ServerOnly bool
	// Hosts are the host at which other nodes dial this one, and names that the certificate may
	// have instead of it. Empty: no node dials it.
	Hosts []string

	// FS is where all of them are; default: the real one.
	FS vfs.FS
	// Now is the clock that they are judged by; default time.Now.
	Now func() time.Time

	strict bool // refuse what has other nodes refuse this one
}

func (f *Files) ensureDefaults() {
	if f.FS == nil {
		f.FS = vfs.OS
	}
	if f.Now == nil {
		f.Now = time.Now
	}
}

// A Severity says what becomes of a node with a finding.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // The node does not start, or keeps what it had.
	SeverityWarning Severity = "warning" // The node starts.
)

// A Finding is one thing that is wrong or doubtful with an operator's files.
type Finding struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file"` // or folder; empty if none is to blame
	Text     string   `json:"text"`
	Remedy   string   `json:"remedy"`
}

// String returns the finding as one line, without its severity.
func (f Finding) String() string {
	line := f.Text + " (" + f.Remedy + ")"
	if f.File != "" {
		line = f.File + ": " + line
	}
	return line
}

// A LoadError is why a node cannot work with its files.
type LoadError struct {
	Findings []Finding // only errors, at least one
}

// Error returns one line per finding.
func (e *LoadError) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// A Set is a node's certificate with all that it needs, verified as a whole. It is never changed.
type Set struct {
	// Certificate is what the node presents: its certificate and the intermediates
	// of its chain, the root left out.
	Certificate tls.Certificate
	// Chain leads from the certificate to a trusted root.
	Chain []*x509.Certificate
	// Roots are the trusted roots, and RootCount is how many they are.
	Roots     *x509.CertPool
	RootCount int
	// ReservedCN is the reserved common name in force.
	ReservedCN string
	// ServerOnly says that certificates of nodes need not allow client authentication.
	ServerOnly bool
	// Expires is when the certificate ceases to be accepted: its own end or that of
	// one it chains through, whichever is first.
	Expires time.Time
	// Warnings are the findings that did not prevent loading.
	Warnings []Finding

	file          string // of the certificate, empty if there is none
	intermediates []*x509.Certificate
	// acceptable are the roots to name when asking for a client certificate, nil if
	// they are too many to send.
	acceptable *x509.CertPool
}

// Load reads and verifies all files. It fails with a *LoadError.
func Load(f Files) (*Set, error) {
	set, report := inspect(f)
	if set == nil {
		return nil, &LoadError{Findings: report.errors()}
	}
	set.Warnings = report.Findings
	return set, nil
}

// Reload is Load for a node that runs with another Set. It also refuses a certificate that other
// nodes would not accept. At a start there may be no other node yet; here there is a Set that
// works.
func Reload(f Files) (*Set, error) {
	f.strict = true
	return Load(f)
}

// A Report is what is known of an operator's files, whether they can be loaded or not.
type Report struct {
	Certificate *x509.Certificate   // of the node, nil if it cannot be read
	Chain       []*x509.Certificate // from it to a trusted root, nil if there is none
	Roots       int                 // how many roots are trusted
	ReservedCN  string              // in force
	// whether other nodes with this reserved name take the holder for a node
	Node     bool
	Findings []Finding // errors first
}

// Inspect reads and verifies all files and tells all that it finds: like Reload if
// there are Hosts, else like Load.
func Inspect(f Files) Report {
	f.strict = len(f.Hosts) > 0
	_, report := inspect(f)
	return report
}

// Refused says whether a node would refuse the files.
func (r *Report) Refused() bool { return len(r.errors()) > 0 }

func (r *Report) errors() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Severity != SeverityError })
}

func (r *Report) fail(file, text, remedy string) {
	r.Findings = append(r.Findings, Finding{SeverityError, file, text, remedy})
}

func (r *Report) warn(file, text, remedy string) {
	r.Findings = append(r.Findings, Finding{SeverityWarning, file, text, remedy})
}

// problem adds an error of reading or parsing.
func (r *Report) problem(severity Severity, file string, err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		p = &problem{err.Error(), "write the file again"}
	}
	r.Findings = append(r.Findings, Finding{severity, file, p.text, p.remedy})
}

// inspect looks at everything. The set is nil if there is an error among the findings.
func inspect(f Files) (*Set, Report) {
	f.ensureDefaults()
	now := f.Now()
	r := Report{ReservedCN: f.ReservedCN}
	b := r.readBundle(f)
	key, keyFile := r.readKey(f, b)
	roots := r.readRoots(f)
	set := &Set{Roots: x509.NewCertPool(), RootCount: len(roots), ServerOnly: f.ServerOnly, file: f.Certificate}
	for _, root := range roots {
		set.Roots.AddCert(root)
	}
	set.acceptable = sendable(roots, set.Roots)
	if b != nil {
		leaf := b.certificates[0]
		if r.ReservedCN == "" {
			r.ReservedCN = leaf.Subject.CommonName
		}
		set.intermediates = b.certificates[1:]
		r.Certificate = leaf
		r.Chain = r.judgeChain(f, set, b.certificates, len(roots) > 0, now)
		r.judgeLeaf(f, leaf, now)
		r.Node = r.Chain != nil && whyNoNode(leaf, r.ReservedCN, set.usages()) == nil
		if key != nil {
			r.judgeKey(f, b, key, keyFile)
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return strings.Compare(string(a.Severity), string(b.Severity)) })
	if r.Refused() {
		return nil, r
	}
	set.ReservedCN = r.ReservedCN
	set.Chain, set.Expires = r.Chain, ends(r.Chain).NotAfter
	set.Certificate = tls.Certificate{Leaf: r.Certificate, PrivateKey: key, Certificate: [][]byte{r.Certificate.Raw}}
	if len(r.Chain) > 1 {
		for _, c := range r.Chain[1 : len(r.Chain)-1] {
			set.Certificate.Certificate = append(set.Certificate.Certificate, c.Raw)
		}
	}
	return set, r
}

func (r *Report) readBundle(f Files) *bundle {
	if f.Certificate == "" {
		r.fail("", "no certificate is configured", "set CertificateFile")
		return nil
	}
	b, err := parseFile(f.FS, f.Certificate, func(data []byte) (*bundle, error) { return parseBundle(data, f.Password) })
	if err != nil {
		r.problem(SeverityError, f.Certificate, err)
	}
	return b
}

// readKey returns the private key and the file it comes from.
func (r *Report) readKey(f Files, b *bundle) (crypto.Signer, string) {
	if b != nil && b.pkcs12 {
		if f.PrivateKey != "" {
			r.warn(f.PrivateKey, "is not used: the PKCS#12 bundle has its own key", "leave CertificatePrivateKeyFile out")
		}
		return b.key, f.Certificate
	}
	if f.PrivateKey == "" {
		// A key file may be needed or not: only the certificate says which.
		if b != nil {
			r.fail(f.Certificate, "comes without a private key", "set CertificatePrivateKeyFile; it may be the same file if the key is in there")
		}
		return nil, ""
	}
	key, err := parseFile(f.FS, f.PrivateKey, func(data []byte) (crypto.Signer, error) { return parseKey(data, f.KeyPassword) })
	if err != nil {
		r.problem(SeverityError, f.PrivateKey, err)
		return nil, ""
	}
	return key, f.PrivateKey
}

// rootExtensions are the endings of files that hold trusted roots.
var rootExtensions = []string{".crt", ".cert", ".cer", ".pem", ".der"}

// readRoots returns the roots of a folder, each once. Files that hold no
// certificate do not prevent the start: fewer roots trust less, and the folders
// of operating systems collect all kinds of things.
func (r *Report) readRoots(f Files) []*x509.Certificate {
	const option = "TrustedRootCertificatesPath"
	dir := f.RootsDir
	if dir == "" {
		r.fail("", "no folder of trusted roots is configured", "set "+option)
		return nil
	}
	names, err := f.FS.List(dir)
	if err != nil {
		r.problem(SeverityError, dir, unreadable(err))
		return nil
	}
	var roots []*x509.Certificate
	seen := map[string]bool{}
	for _, name := range names {
		file := filepath.Join(dir, name)
		if !slices.Contains(rootExtensions, strings.ToLower(filepath.Ext(file))) {
			continue
		}
		if info, err := f.FS.Stat(file); err == nil && info.IsDir() {
			continue
		}
		found, err := parseFile(f.FS, file, parseCertificates)
		if err != nil {
			r.problem(SeverityWarning, file, err)
			continue
		}
		for _, c := range found {
			if seen[string(c.Raw)] {
				continue
			}
			seen[string(c.Raw)] = true
			if !selfSigned(c) {
				r.fail(file, fmt.Sprintf("the certificate %q is not self-signed, so it is not a root", c.Subject),
					"keep only root certificates in this folder; put intermediates after the node's certificate in its file")
				continue
			}
			roots = append(roots, c)
		}
	}
	r.Roots = len(roots)
	if len(roots) == 0 {
		r.fail(dir, "holds no trusted root certificate", "put the root certificate of the cluster's authority into this folder, ending in "+strings.Join(rootExtensions, ", "))
	}
	return roots
}

// maxAcceptableBytes is how much of a handshake the names of acceptable roots
// may take; the record that carries them ends at 65,535 bytes.
const maxAcceptableBytes = 8 << 10

// sendable returns the pool if the names of its roots fit into a request for a
// client certificate. Without names a client offers whatever it has.
func sendable(roots []*x509.Certificate, pool *x509.CertPool) *x509.CertPool {
	bytes := 0
	for _, c := range roots {
		bytes += len(c.RawSubject) + 2
	}
	if bytes > maxAcceptableBytes {
		return nil
	}
	return pool
}

// judgeChain returns the node's chain, nil if there is none.
func (r *Report) judgeChain(f Files, set *Set, certificates []*x509.Certificate, haveRoots bool, now time.Time) []*x509.Certificate {
	leaf := certificates[0]
	for _, c := range certificates[1:] {
		if selfSigned(c) {
			r.fail(f.Certificate, fmt.Sprintf("the certificate %q after the node's is self-signed, so it is not an intermediate", c.Subject),
				"remove it from the file; a root belongs into the folder of trusted roots")
		}
	}
	if !haveRoots {
		return nil // Said already.
	}
	// The end of the node's own certificate is distinguished from its chain, so
	// that the operator who renews it learns at once what else is wrong.
	at := now
	if at.Before(leaf.NotBefore) {
		at = leaf.NotBefore
	} else if at.After(leaf.NotAfter) {
		at = leaf.NotAfter
	}
	chains, err := set.chains(certificates, at)
	if err != nil && !at.Equal(now) && chainStatus(err) == statusNotTimeValid {
		return nil // Its authority began later: told when the certificate is renewed.
	}
	if err != nil {
		text, remedy := explainChain(leaf, f.RootsDir, at, err)
		r.fail(f.Certificate, text, remedy)
		return nil
	}
	above := chains[0][1:]
	usable := slices.DeleteFunc(chains, func(chain []*x509.Certificate) bool {
		return len(withUsages([][]*x509.Certificate{chain[1:]}, set.usages()...)) == 0
	})
	if len(usable) == 0 {
		r.fail(f.Certificate, fmt.Sprintf("an authority above %q does not allow %s", leaf.Subject, authentication(set.usages())),
			"have it issued by an authority without that restriction"+orServerOnly(f, above...))
		return nil
	}
	chain := lasting(usable)
	r.Findings = append(r.Findings, expiringAuthority(f.Certificate, chain, now)...)
	return chain
}

// orServerOnly is a second remedy where the certificates lack nothing but client authentication.
func orServerOnly(f Files, lacking ...*x509.Certificate) string {
	if f.ServerOnly || slices.ContainsFunc(lacking, func(c *x509.Certificate) bool { return !allows(c, x509.ExtKeyUsageServerAuth) }) {
		return ""
	}
	return ", or set AllowServerOnlyNodeCertificates on every node"
}

// explainChain says why there is no chain to a root, and what to do.
func explainChain(leaf *x509.Certificate, rootsDir string, at time.Time, err error) (text, remedy string) {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Cert != nil {
		name := fmt.Sprintf("the certificate %q in its chain ", invalid.Cert.Subject)
		switch {
		case invalid.Reason == x509.Expired && at.Before(invalid.Cert.NotBefore):
			return name + "is not valid before " + day(invalid.Cert.NotBefore), "check the clock of this machine, or renew that certificate"
		case invalid.Reason == x509.Expired:
			return name + "expired on " + day(invalid.Cert.NotAfter), "renew that certificate"
		}
		return fmt.Sprintf("%sis not accepted: %v", name, err), "have the certificate issued again"
	}
	return fmt.Sprintf("its chain does not lead to a trusted root (PartialChain): %q was issued by %q: %v", leaf.Subject, leaf.Issuer, err),
		fmt.Sprintf("put the root above it into %s (TrustedRootCertificatesPath), and intermediates after the certificate in its file", rootsDir)
}

// judgeLeaf looks at the node's certificate alone.
func (r *Report) judgeLeaf(f Files, leaf *x509.Certificate, now time.Time) {
	file := f.Certificate
	if now.Before(leaf.NotBefore) {
		r.fail(file, fmt.Sprintf("is not valid before %s", day(leaf.NotBefore)), "check the clock of this machine, or wait")
	}
	r.Findings = append(r.Findings, expiringNode(file, leaf, now)...)
	if usages := usagesOf(f.ServerOnly); !allows(leaf, usages...) {
		r.fail(file, "its extended key usage does not allow "+authentication(usages),
			"have it issued with serverAuth and clientAuth, or without the extension"+orServerOnly(f, leaf))
	}
	isolate := r.warn // for what has other nodes refuse this one
	if f.strict {
		isolate = r.fail
	}
	switch {
	case !hasAddress(leaf):
		isolate(file, "has neither a DNS name nor an IP address as alternative name, so other nodes do not accept it",
			"have it issued with the node's names and addresses as alternative names")
	case len(f.Hosts) > 0 && !slices.ContainsFunc(f.Hosts, func(host string) bool { return matchesHost(leaf, host) }):
		isolate(file, fmt.Sprintf("was not issued for %s, at which other nodes dial this one, but for %s", strings.Join(f.Hosts, " or "), strings.Join(NamesOf(leaf), ", ")),
			fmt.Sprintf("have it issued with %s as alternative name, or set ReplicationHostAdvertiseAs to a name that it has", f.Hosts[0]))
	}
	switch name := leaf.Subject.CommonName; {
	case f.ReservedCN != "" && !matchesCommonName(name, f.ReservedCN):
		r.fail(file, fmt.Sprintf("its common name %q does not match the reserved name %q", name, f.ReservedCN),
			"set CertificateReservedNodeCommonName to a name or pattern that all nodes match, or leave it out")
	case name == "":
		r.warn(file, "has no common name, so other nodes do not accept it", "have it issued with a common name that all nodes share")
	}
	if public, ok := leaf.PublicKey.(*rsa.PublicKey); ok && public.N.BitLen() < minRSABits {
		r.warn(file, fmt.Sprintf("its RSA key has %d bits, which clients may refuse", public.N.BitLen()),
			fmt.Sprintf("have it issued for a key of %d bits or more", minRSABits))
	}
}

// judgeKey looks at the node's private key, which came from a file.
func (r *Report) judgeKey(f Files, b *bundle, key crypto.Signer, file string) {
	if !belongs(key, b.certificates[0]) {
		text := fmt.Sprintf("its private key does not belong to the certificate in %s", f.Certificate)
		remedy := "name the key that the certificate was issued for"
		if slices.ContainsFunc(b.certificates[1:], func(c *x509.Certificate) bool { return belongs(key, c) }) {
			remedy = "put the node's certificate first in its file: the key belongs to another one there"
		}
		r.fail(file, text, remedy)
	}
	if runtime.GOOS == "windows" {
		return // Its permissions are not in the mode.
	}
	if info, err := f.FS.Stat(file); err == nil && info.Mode().Perm()&0o004 != 0 {
		r.warn(file, "every user of this machine may read the private key", "take the permission away: chmod o-rwx "+file)
	}
}

// day is how operators read dates: to the minute, so that the last day is exact.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
