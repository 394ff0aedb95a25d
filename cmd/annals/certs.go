package main

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/certs"
)

const certsHelp = `Make, check and renew the certificates of a cluster.

Nodes accept each other by certificates of one authority. If you have none:

  annals certs ca --out ca
  annals certs node --ca ca --out node1 --dns node1.example.com --ip 10.0.0.1

Then, on node1, with ca.crt alone in the folder roots:

  annals --certificate-file node.crt --certificate-private-key-file node.key \
    --trusted-root-certificates-path roots

With the file ca.key anyone can make new nodes. Do not store it on the nodes, and keep it
secret.`

const certsAuthorityHelp = `Make an authority: ca.crt, which every node and client must trust, and ca.key, which
issues the certificates of nodes. Only its owner can read ca.key.

The command overwrites existing files only with --force. If an authority is lost, all
certificates that it issued lose their trust.`

const certsNodeHelp = `Make the certificate of one node, node.crt, and its private key, node.key, which only its
owner can read. Copy both to that node.

Name every host and address that other nodes and clients use for the node. All nodes of a
cluster share one common name: by it a node recognizes the others.`

const certsCheckHelp = `Check the files that a node would start with. The command prints the certificate and every
error and warning. The options are those of the node. With --host the check is that of a
reload, which refuses more than a start does.

Set passwords in the environment, where other users do not see them:
STORE_CERTIFICATE_PASSWORD and STORE_CERTIFICATE_PRIVATE_KEY_PASSWORD.

Exit codes: 0 a node would start, 1 it would refuse to, 2 bad arguments.`

func certsCommand(stdout io.Writer) *cobra.Command {
	return group("certs", "Make, check and renew the certificates of a cluster", certsHelp,
		certsAuthorityCommand(stdout), certsNodeCommand(stdout), certsCheckCommand(stdout), certsRenewCommand(stdout))
}

// keyKinds are the values of --key.
func keyKinds() string {
	return strings.Join([]string{string(certs.RSA2048), string(certs.RSA4096), string(certs.ECDSAP256)}, ", ")
}

func certsAuthorityCommand(stdout io.Writer) *cobra.Command {
	var o certs.AuthorityOptions
	var out, key string
	var force, keep bool
	cmd := &cobra.Command{
		Use:     "ca --out folder",
		Short:   "Make an authority",
		Long:    certsAuthorityHelp,
		Example: "  annals certs ca --out ca\n  annals certs ca --out ca --name \"Example cluster CA\" --days 3650",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			o.Key = certs.KeyKind(key)
			authority, err := certs.NewAuthority(o)
			if err != nil {
				return err
			}
			if err := authority.Write(out, force); err != nil {
				return keepOrExplain(stdout, out, keep, err)
			}
			_, err = fmt.Fprintf(stdout, "%s  %s, until %s\n%s  its private key: do not store it on the nodes, and keep it secret\n",
				filepath.Join(out, certs.AuthorityCertificateFile), authority.Certificate.Subject, minute(authority.Certificate.NotAfter),
				filepath.Join(out, certs.AuthorityKeyFile))
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&out, "out", "", "folder for ca.crt and ca.key (required)")
	flags.StringVar(&o.CommonName, "name", "", "common name of the authority (default one made from its key)")
	flags.IntVar(&o.Days, "days", 0, "days until it expires (default 1825)")
	flags.StringVar(&key, "key", string(certs.RSA2048), "kind of key: "+keyKinds())
	flags.BoolVar(&force, "force", false, "overwrite files")
	flags.BoolVar(&keep, "keep", false, "succeed and change nothing if the files are there")
	cmd.MarkFlagsMutuallyExclusive("force", "keep")
	return required(cmd, "out")
}

func certsNodeCommand(stdout io.Writer) *cobra.Command {
	var o certs.NodeOptions
	var ca, out, key string
	var ips []string
	var force, keep bool
	cmd := &cobra.Command{
		Use:   "node --ca folder --out folder --dns names --ip addresses",
		Short: "Make the certificate of a node",
		Long:  certsNodeHelp,
		Example: "  annals certs node --ca ca --out node1 --dns node1.example.com --ip 10.0.0.1\n" +
			"  annals certs node --ca ca --out node2 --dns node2.example.com,db.example.com --days 90",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			o.Key = certs.KeyKind(key)
			for _, text := range ips {
				ip, err := netip.ParseAddr(text)
				if err != nil {
					return cannot(fmt.Errorf("--ip: %q is not an IP address", text))
				}
				o.IPs = append(o.IPs, ip)
			}
			if len(o.DNSNames)+len(o.IPs) == 0 {
				return cannot(errors.New("name at least one --dns or --ip that others use for the node"))
			}
			authority, err := certs.LoadAuthority(ca)
			if err != nil {
				return fmt.Errorf("%w (make an authority with: annals certs ca)", err)
			}
			issued, err := authority.Issue(o)
			if err != nil {
				return err
			}
			if err := issued.Write(out, force); err != nil {
				return keepOrExplain(stdout, out, keep, err)
			}
			c := issued.Certificate
			_, err = fmt.Fprintf(stdout, "%s  %s for %s, until %s\n%s  its private key: keep it secret\n",
				filepath.Join(out, certs.NodeCertificateFile), c.Subject, strings.Join(certs.NamesOf(c), ", "), minute(c.NotAfter),
				filepath.Join(out, certs.NodeKeyFile))
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&ca, "ca", "", "folder of the authority's ca.crt and ca.key (required)")
	flags.StringVar(&out, "out", "", "folder for node.crt and node.key (required)")
	flags.StringSliceVar(&o.DNSNames, "dns", nil, "DNS names of the node, separated by commas; *.example.com is any one name under example.com")
	flags.StringSliceVar(&ips, "ip", nil, "IP addresses of the node, separated by commas")
	flags.StringVar(&o.CommonName, "common-name", certs.DefaultNodeCommonName, "name that all nodes of the cluster share")
	flags.IntVar(&o.Days, "days", 0, "days until it expires (default 365, or as long as the authority)")
	flags.StringVar(&key, "key", "", "kind of key: "+keyKinds()+" (default as the authority: rsa-2048 or ecdsa-p256)")
	flags.BoolVar(&force, "force", false, "overwrite files")
	flags.BoolVar(&keep, "keep", false, "succeed and change nothing if the files are there")
	cmd.MarkFlagsMutuallyExclusive("force", "keep")
	return required(cmd, "ca", "out")
}

// required marks options without which a command cannot run.
func required(cmd *cobra.Command, names ...string) *cobra.Command {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range names {
			if cmd.Flags().Lookup(name).Value.String() == "" {
				return fmt.Errorf("--%s is missing, see %s --help", name, cmd.CommandPath())
			}
		}
		return nil
	}
	return cmd
}

// keepOrExplain says that existing files stay, if --keep is set.
func keepOrExplain(stdout io.Writer, out string, keep bool, err error) error {
	if keep && errors.Is(err, fs.ErrExist) {
		_, err = fmt.Fprintf(stdout, "%s has the files already: nothing was changed\n", out)
		return err
	}
	return explainWrite(err)
}

// explainWrite adds what to do about an existing file.
func explainWrite(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w (choose another folder, or overwrite it with --force)", err)
	}
	return err
}

func certsCheckCommand(stdout io.Writer) *cobra.Command {
	var f certs.Files
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check --certificate-file file",
		Short: "Check the certificate files of a node",
		Long:  certsCheckHelp,
		Example: "  annals certs check --certificate-file node.crt --certificate-private-key-file node.key \\\n" +
			"    --trusted-root-certificates-path roots\n" +
			"  annals certs check --certificate-file node.p12 --trusted-root-certificates-path roots --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Certificate == "" {
				return cannot(errors.New("--certificate-file is missing, see annals certs check --help"))
			}
			fromEnvironment(cmd, "certificate-password", &f.Password)
			fromEnvironment(cmd, "certificate-private-key-password", &f.KeyPassword)
			report := certs.Inspect(f)
			write := writeCertsText
			if asJSON {
				write = writeCertsJSON
			}
			if err := write(stdout, f, &report, time.Now()); err != nil {
				return cannot(err)
			}
			if report.Refused() {
				return &codedError{code: exitProblems}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Certificate, "certificate-file", "", "certificate of the node: PKCS#12, or X.509 in PEM or DER form (required)")
	flags.StringVar(&f.PrivateKey, "certificate-private-key-file", "", "private key of an X.509 certificate")
	flags.StringVar(&f.RootsDir, "trusted-root-certificates-path", "/etc/ssl/certs", "folder of the trusted roots")
	flags.StringVar(&f.Password, "certificate-password", "", "password of a PKCS#12 bundle")
	flags.StringVar(&f.KeyPassword, "certificate-private-key-password", "", "password of an encrypted key")
	flags.StringVar(&f.ReservedCN, "certificate-reserved-node-common-name", "", "pattern that the common names of nodes match (default that of the certificate)")
	flags.BoolVar(&f.ServerOnly, "allow-server-only-node-certificates", false, "accept certificates of nodes without client authentication")
	flags.StringSliceVar(&f.Hosts, "host", nil, "host that other nodes use for this one, or the name of the cluster; the certificate must name one of them")
	flags.BoolVar(&asJSON, "json", false, "print one JSON document in place of text")
	return cmd
}

// fromEnvironment fills an option that was not given, as a node does.
func fromEnvironment(cmd *cobra.Command, flag string, value *string) {
	if cmd.Flags().Changed(flag) {
		return
	}
	name := strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	if v, ok := config.LookupEnv(name, os.LookupEnv); ok {
		*value = v
	}
}

// The document of annals certs check --json.
type certsDocument struct {
	Accepted           bool              `json:"accepted"`
	Certificate        *certsCertificate `json:"certificate"`
	Chain              []certsIssuer     `json:"chain"`
	TrustedRoots       int               `json:"trustedRoots"`
	ReservedCommonName string            `json:"reservedNodeCommonName"`
	Node               bool              `json:"acceptedByNodes"`
	Findings           []certs.Finding   `json:"findings"`
}

type certsCertificate struct {
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	Names     []string  `json:"alternativeNames"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	Key       string    `json:"key"`
	Serial    string    `json:"serial"`
	SHA256    string    `json:"sha256"`
}

type certsIssuer struct {
	Subject  string    `json:"subject"`
	NotAfter time.Time `json:"notAfter"`
}

func describeCertificate(c *x509.Certificate) *certsCertificate {
	digest := sha256.Sum256(c.Raw)
	return &certsCertificate{
		Subject: c.Subject.String(), Issuer: c.Issuer.String(), Names: certs.NamesOf(c),
		NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(), Key: describeKey(c), Serial: c.SerialNumber.Text(16), SHA256: hex.EncodeToString(digest[:]),
	}
}

// describeKey names the kind and size of a certificate's key.
func describeKey(c *x509.Certificate) string {
	switch key := c.PublicKey.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", key.N.BitLen())
	case *ecdsa.PublicKey:
		return "ECDSA " + key.Params().Name
	}
	return c.PublicKeyAlgorithm.String()
}

func writeCertsJSON(w io.Writer, _ certs.Files, r *certs.Report, _ time.Time) error {
	d := certsDocument{
		Accepted: !r.Refused(), Chain: []certsIssuer{}, TrustedRoots: r.Roots, ReservedCommonName: r.ReservedCN, Node: r.Node,
		Findings: append([]certs.Finding{}, r.Findings...),
	}
	if r.Certificate != nil {
		d.Certificate = describeCertificate(r.Certificate)
	}
	for _, c := range issuers(r) {
		d.Chain = append(d.Chain, certsIssuer{c.Subject.String(), c.NotAfter.UTC()})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

// issuers are the chain above the node's certificate, the root last.
func issuers(r *certs.Report) []*x509.Certificate {
	if len(r.Chain) == 0 {
		return nil
	}
	return r.Chain[1:]
}

func writeCertsText(w io.Writer, f certs.Files, r *certs.Report, now time.Time) error {
	var t table
	row := func(name, format string, args ...any) { t.row(name+"\t"+format, args...) }
	if r.Certificate != nil {
		c := describeCertificate(r.Certificate)
		row("subject", "%s", c.Subject)
		row("names", "%s", orNone(strings.Join(c.Names, ", ")))
		row("valid", "%s to %s (%s)", minute(c.NotBefore), minute(c.NotAfter), remaining(r.Certificate, now))
		row("key", "%s", c.Key)
		row("sha-256", "%s", c.SHA256)
		row("issuer", "%s", c.Issuer)
		for _, above := range issuers(r) {
			row("above it", "%s, until %s", above.Subject, minute(above.NotAfter))
		}
		row("reserved name", "%s", orNone(r.ReservedCN))
		row("node", "%s", map[bool]string{true: "yes: nodes with this reserved name accept it", false: "no: other nodes do not accept it"}[r.Node])
	}
	row("trusted roots", "%d in %s", r.Roots, f.RootsDir)
	if err := t.print(w); err != nil {
		return err
	}
	var b strings.Builder
	errorsFound, warnings := 0, 0
	for _, finding := range r.Findings {
		if finding.Severity == certs.SeverityError {
			errorsFound++
		} else {
			warnings++
		}
		where := finding.File
		if where != "" {
			where += ": "
		}
		fmt.Fprintf(&b, "\n%s %s%s\n  remedy: %s\n", finding.Severity, where, finding.Text, finding.Remedy)
	}
	willing, unwilling := "a node would start with these files", "a node would refuse to start with these files"
	if len(f.Hosts) > 0 {
		willing, unwilling = "a running node would take these files over", "a running node would refuse to take these files over"
	}
	verdict := willing
	if errorsFound > 0 {
		verdict = unwilling
	}
	fmt.Fprintf(&b, "\n%s: %d errors, %d warnings\n", verdict, errorsFound, warnings)
	_, err := io.WriteString(w, b.String())
	return err
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// remaining says how long a certificate is still valid, in whole days.
func remaining(c *x509.Certificate, now time.Time) string {
	switch {
	case now.Before(c.NotBefore):
		return "not yet"
	case now.After(c.NotAfter):
		return "expired"
	}
	return fmt.Sprintf("%d days left", int(c.NotAfter.Sub(now).Hours()/24))
}
