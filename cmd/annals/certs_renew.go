package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/internal/certs"
)

const certsRenewHelp = `Make the next certificate of a node. It has the DNS names, IP addresses, common name, kind
of key and term of the present one, and a new key.

With --out the two files go into another folder. With --replace they take the place of the
present ones, with the same owner and permissions, and the old files stay as *.old-TIME.
The node uses its old certificate until SIGHUP or POST /admin/reloadconfig has it read the
files.

--common-name gives it another common name, and an authority other than that of the
present certificate may issue it. Read the procedures in docs/operations.md for both: the
other nodes must accept the new one first.

Exit codes: 0 made, 1 not made, 2 bad arguments.`

// renewal is the flags of annals certs renew.
type renewal struct {
	ca, certificate, key, password string
	out                            string
	replace, force, asJSON         bool
	commonName, keyKind            string
	days                           int
}

func certsRenewCommand(stdout io.Writer) *cobra.Command {
	var r renewal
	cmd := &cobra.Command{
		Use:   "renew --ca folder --certificate-file file (--out folder | --replace)",
		Short: "Make the next certificate of a node",
		Long:  certsRenewHelp,
		Example: "  annals certs renew --ca ca --certificate-file node1/node.crt --out next/node1\n" +
			"  annals certs renew --ca ca --certificate-file node.crt --certificate-private-key-file node.key --replace",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case r.ca == "" || r.certificate == "":
				return cannot(errors.New("--ca and --certificate-file are needed, see annals certs renew --help"))
			case r.replace == (r.out != ""):
				return cannot(errors.New("say where the certificate goes: --out folder, or --replace"))
			case r.replace && r.key == "":
				return cannot(errors.New("--replace needs --certificate-private-key-file, the key that is replaced"))
			}
			fromEnvironment(cmd, "certificate-password", &r.password)
			return r.run(stdout)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.ca, "ca", "", "folder of the authority's ca.crt and ca.key (required)")
	flags.StringVar(&r.certificate, "certificate-file", "", "present certificate of the node (required)")
	flags.StringVar(&r.key, "certificate-private-key-file", "", "its private key; needed to replace it")
	flags.StringVar(&r.password, "certificate-password", "", "password of a PKCS#12 bundle")
	flags.StringVar(&r.out, "out", "", "folder for the new node.crt and node.key")
	flags.BoolVar(&r.replace, "replace", false, "put the new files in place of the present ones, which stay under other names")
	flags.BoolVar(&r.force, "force", false, "overwrite files in the folder of --out")
	flags.StringVar(&r.commonName, "common-name", "", "common name (default that of the present certificate)")
	flags.IntVar(&r.days, "days", 0, "days until it expires (default the term of the present one, or as long as the authority)")
	flags.StringVar(&r.keyKind, "key", "", "kind of key: "+keyKinds()+" (default that of the present one)")
	flags.BoolVar(&r.asJSON, "json", false, "print one JSON document in place of text")
	return cmd
}

func (r *renewal) run(stdout io.Writer) error {
	present, err := certs.NodeCertificate(r.certificate, r.password)
	if err != nil {
		return err
	}
	authority, err := certs.LoadAuthority(r.ca)
	if err != nil {
		return fmt.Errorf("%w (make an authority with: annals certs ca)", err)
	}
	o, err := authority.Successor(present)
	if r.keyKind != "" {
		o.Key, err = certs.KeyKind(r.keyKind), nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w (name one with --key)", r.certificate, err)
	}
	if r.commonName != "" {
		o.CommonName = r.commonName
	}
	if r.days != 0 {
		o.Days = r.days
	}
	issued, err := authority.Issue(o)
	if err != nil {
		return err
	}
	d := renewalDocument{Certificate: describeCertificate(issued.Certificate), Kept: []string{}, Authority: certsIssuer{authority.Certificate.Subject.String(), authority.Certificate.NotAfter.UTC()}}
	if r.replace {
		d.CertificateFile, d.PrivateKeyFile = r.certificate, r.key
		if d.Kept, err = issued.Replace(r.certificate, r.key, time.Now()); err != nil {
			return err
		}
	} else {
		d.CertificateFile, d.PrivateKeyFile = filepath.Join(r.out, certs.NodeCertificateFile), filepath.Join(r.out, certs.NodeKeyFile)
		if err := issued.Write(r.out, r.force); err != nil {
			return explainWrite(err)
		}
	}
	d.AuthorityExpiring = authority.Expiring(time.Now())
	if r.asJSON {
		return printJSON(stdout, d)
	}
	return d.write(stdout, r.replace)
}

// renewalDocument is what annals certs renew --json prints.
type renewalDocument struct {
	CertificateFile   string            `json:"certificateFile"`
	PrivateKeyFile    string            `json:"privateKeyFile"`
	Certificate       *certsCertificate `json:"certificate"`
	Authority         certsIssuer       `json:"authority"`
	AuthorityExpiring bool              `json:"authorityExpiring"`
	Kept              []string          `json:"kept"`
}

func (d *renewalDocument) write(w io.Writer, replaced bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s for %s, until %s\n%s  its private key: keep it secret\n",
		d.CertificateFile, d.Certificate.Subject, strings.Join(d.Certificate.Names, ", "), minute(d.Certificate.NotAfter), d.PrivateKeyFile)
	for _, name := range d.Kept {
		fmt.Fprintf(&b, "%s  the old file\n", name)
	}
	if replaced {
		b.WriteString("the node reads it at SIGHUP or POST /admin/reloadconfig\n")
	}
	if d.AuthorityExpiring {
		fmt.Fprintf(&b, "warning: the authority %s ends on %s: make the next one\n", d.Authority.Subject, minute(d.Authority.NotAfter))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
