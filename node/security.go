package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/replication/gossip"
)

// openSecurity reads the certificates if there are any.
func (n *Node) openSecurity() error {
	c := n.config
	set, err := n.opts.Certificates, error(nil)
	switch {
	case set != nil:
	case c.CertificateFile != "" && !c.Insecure:
		set, err = certs.Load(n.certificateFiles(c))
	case c.SelfMadeCertificate():
		set, err = n.developmentCertificate()
	default:
		return nil
	}
	if err != nil {
		return err
	}
	n.security = newCertificates(certs.NewStore(set, certs.StoreOptions{DNSName: n.clusterName(), Now: n.opts.Now}), n.opts.Stats, n.logger)
	n.security.report(set.Warnings)
	return nil
}

// clusterName is the name by which members find each other, empty if they do so otherwise.
func (n *Node) clusterName() string {
	if c := n.config; c.ClusterSize > 1 && c.ViaDNS() {
		return c.ClusterDns
	}
	return ""
}

// certificateFiles are those that a configuration names, for the addresses of this node.
func (n *Node) certificateFiles(c *config.Config) certs.Files {
	f := certs.Files{
		Certificate: c.CertificateFile, PrivateKey: c.CertificatePrivateKeyFile, Password: c.CertificatePassword,
		KeyPassword: c.CertificatePrivateKeyPassword, RootsDir: c.TrustedRootCertificatesPath, ReservedCN: c.CertificateReservedNodeCommonName,
		ServerOnly: n.config.AllowServerOnlyNodeCertificates, FS: n.opts.CertificateFS, Now: n.opts.Now,
	}
	if host := n.dialledHost(); host != "" {
		f.Hosts = append(f.Hosts, host)
		if name := n.clusterName(); name != "" {
			f.Hosts = append(f.Hosts, name)
		}
	}
	return f
}

// dialledHost is the host at which other nodes dial this one, empty if none does. No node dials one
// on its own, unless its operator has named the address for them: then others are to come.
func (n *Node) dialledHost() string {
	c := n.config
	switch {
	case c.ReplicationHostAdvertiseAs != "":
		return c.ReplicationHostAdvertiseAs
	case c.ClusterSize == 1 && !c.Given("ReplicationIp"):
		return ""
	case !c.ReplicationIp.IsUnspecified():
		return c.ReplicationIp.String()
	case c.ClusterSize == 1:
		return ""
	}
	ip, err := gossip.MachineAddress()
	if err != nil {
		n.logger.Debug("the address at which other nodes dial this one is unknown, so its certificate is not checked against it", logkey.Error, err)
		return ""
	}
	return ip.String()
}

// developmentAuthority is the folder within the data folder in which a node for
// development keeps its own authority, so that one who trusts it need not do so again.
const developmentAuthority = "dev-ca"

// developmentCertificate makes a certificate for this machine.
func (n *Node) developmentCertificate() (*certs.Set, error) {
	if n.config.MemDb || !vfs.IsOS(n.fs) {
		return certs.Temporary()
	}
	dir := filepath.Join(n.config.Db, developmentAuthority)
	var authority *certs.Authority
	_, err := vfs.OS.Stat(filepath.Join(dir, certs.AuthorityCertificateFile))
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
	issued, err := authority.Issue(certs.Localhost)
	if err != nil {
		return nil, fmt.Errorf("certificate for development: %w", err)
	}
	n.logger.Info("this node for development has a certificate of its own authority", "authority", filepath.Join(dir, certs.AuthorityCertificateFile))
	return authority.Set(issued), nil
}
