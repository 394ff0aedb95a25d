package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/annalsdb/annals/internal/certs"
)

// openSecurity reads the certificates if there are any.
func (n *Node) openSecurity() error {
	c := n.config
	set, err := n.opts.Certificates, error(nil)
	switch {
	case set != nil:
	case c.CertificateFile != "" && !c.Insecure:
		set, err = certs.Load(certs.Files{
			Certificate: c.CertificateFile, PrivateKey: c.CertificatePrivateKeyFile, Password: c.CertificatePassword,
			KeyPassword: c.CertificatePrivateKeyPassword, RootsDir: c.TrustedRootCertificatesPath, ReservedCN: c.CertificateReservedNodeCommonName,
		})
	case c.SelfMadeCertificate():
		set, err = n.developmentCertificate()
	default:
		return nil
	}
	if err != nil {
		return err
	}
	for _, w := range set.Warnings {
		n.logger.Warn("a certificate needs a look", "file", w.File, "finding", w.Text, "remedy", w.Remedy)
	}
	var options certs.StoreOptions
	if c.ClusterSize > 1 && c.ViaDNS() {
		options.DNSName = c.ClusterDns
	}
	n.security = certs.NewStore(set, options)
	return nil
}

// developmentAuthority is the folder within the data folder in which a node for
// development keeps its own authority, so that whoever trusts it once need not again.
const developmentAuthority = "dev-ca"

// developmentCertificate makes a certificate for this machine.
func (n *Node) developmentCertificate() (*certs.Set, error) {
	if n.config.MemDb {
		return certs.Temporary()
	}
	dir := filepath.Join(n.config.Db, developmentAuthority)
	var authority *certs.Authority
	_, err := os.Stat(filepath.Join(dir, certs.AuthorityCertificateFile))
	switch {
	case err == nil:
		authority, err = certs.LoadAuthority(dir)
	case errors.Is(err, fs.ErrNotExist):
		if authority, err = certs.NewAuthority(certs.AuthorityOptions{}); err == nil {
			err = authority.Write(dir, false)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("certificate for development: %w", err)
	}
	issued, err := authority.Issue(certs.NodeOptions{
		DNSNames: []string{"localhost"}, IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()},
	})
	if err != nil {
		return nil, fmt.Errorf("certificate for development: %w", err)
	}
	n.logger.Info("this node for development has a certificate of its own authority", "authority", filepath.Join(dir, certs.AuthorityCertificateFile))
	return authority.Set(issued), nil
}
