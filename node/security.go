package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/replication/gossip"
)

// certificateSource says which certificate a node is to have.
type certificateSource struct {
	config *config.Config
	opts   *Options
	fs     vfs.FS
	logger hclog.Logger
}

func certificatesOf(n *Node) *certificateSource {
	return &certificateSource{config: n.config, opts: &n.opts, fs: n.fs, logger: n.logger}
}

// open reads the certificates; nil: there are none.
func (s *certificateSource) open() (*certificates, error) {
	c := s.config
	set, err := s.opts.Certificates, error(nil)
	switch {
	case set != nil:
	case c.CertificateFile != "" && !c.Insecure:
		set, err = certs.Load(s.files(c))
	case c.SelfMadeCertificate():
		set, err = s.development()
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	taken := newCertificates(certs.NewStore(set, certs.StoreOptions{DNSName: s.clusterName(), Now: s.opts.Now}), s.opts.Stats, s.logger)
	taken.report(set.Warnings)
	return taken, nil
}

// clusterName is the name by which members find each other, empty if they do so otherwise.
func (s *certificateSource) clusterName() string {
	if c := s.config; c.ClusterSize > 1 && c.ViaDNS() {
		return c.ClusterDns
	}
	return ""
}

// files are those that a configuration names, for the addresses of this node.
func (s *certificateSource) files(c *config.Config) certs.Files {
	f := certs.Files{
		Certificate: c.CertificateFile, PrivateKey: c.CertificatePrivateKeyFile, Password: c.CertificatePassword,
		KeyPassword: c.CertificatePrivateKeyPassword, RootsDir: c.TrustedRootCertificatesPath, ReservedCN: c.CertificateReservedNodeCommonName,
		ServerOnly: s.config.AllowServerOnlyNodeCertificates, FS: s.opts.CertificateFS, Now: s.opts.Now,
	}
	if host := s.dialledHost(); host != "" {
		f.Hosts = append(f.Hosts, host)
		if name := s.clusterName(); name != "" {
			f.Hosts = append(f.Hosts, name)
		}
	}
	return f
}

// dialledHost is the host at which other nodes dial this one, empty if none does. No node dials one
// on its own, unless its operator has named the address for them: then others are to come.
func (s *certificateSource) dialledHost() string {
	c := s.config
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
		s.logger.Debug("the address at which other nodes dial this one is unknown, so its certificate is not checked against it", logkey.Error, err)
		return ""
	}
	return ip.String()
}

// developmentAuthority is the folder within the data folder in which a node for
// development keeps its own authority, so that one who trusts it need not do so again.
const developmentAuthority = "dev-ca"

// development makes a certificate for this machine.
func (s *certificateSource) development() (*certs.Set, error) {
	if s.config.MemDb || !vfs.IsOS(s.fs) {
		return certs.Temporary()
	}
	dir := filepath.Join(s.config.Db, developmentAuthority)
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
	s.logger.Info("this node for development has a certificate of its own authority", "authority", filepath.Join(dir, certs.AuthorityCertificateFile))
	return authority.Set(issued), nil
}
