package torture

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/vfs"
)

// Certificates are what the operator makes for a cluster that has TLS and users. There are two
// authorities, so that nodes can change from one to the other. Clients trust both. Nil stands for a
// cluster without.
type Certificates struct {
	authorities [2]*certs.Authority
	pool        *x509.CertPool

	mu    sync.Mutex               // guards short
	short map[string]*certs.Issued // certificates that end soon, by serial number
}

// The files of a node, below a folder of its own.
const (
	CertificateFile = certs.NodeCertificateFile
	KeyFile         = certs.NodeKeyFile
	RootsFolder     = "roots"
)

// certificateDays is longer than any cluster lives.
const certificateDays = 3650

// administrator is who may do everything in a new cluster.
var administrator = url.UserPassword("admin", "changeit")

// NewCertificates makes the authorities.
func NewCertificates() (*Certificates, error) {
	c := &Certificates{pool: x509.NewCertPool(), short: map[string]*certs.Issued{}}
	for i := range c.authorities {
		var err error
		if c.authorities[i], err = certs.NewAuthority(certs.AuthorityOptions{Key: certs.ECDSAP256, Days: certificateDays}); err != nil {
			return nil, err
		}
		c.pool.AddCert(c.authorities[i].Certificate)
	}
	return c, nil
}

// Trust is which of the two authorities a node trusts, and which one issues its certificate.
type Trust struct {
	Both   bool
	Issuer int           // 0 or 1
	Lasts  time.Duration // of the certificate; 0: longer than any cluster lives
}

// Put puts files with a new certificate for a node at an address into its folder. A node
// that reads one of them meanwhile has the old one or the new one.
func (c *Certificates) Put(files vfs.FS, folder, ip string, t Trust) (serial string, err error) {
	contents, serial, err := c.issue(netip.MustParseAddr(ip), t)
	if err != nil {
		return "", err
	}
	if err := files.MkdirAll(path.Join(folder, RootsFolder)); err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		if file := path.Join(folder, name); contents[name] == nil {
			err = errors.Join(err, vfs.RemoveIfThere(files, file))
		} else {
			err = errors.Join(err, vfs.WriteFileAtomic(files, file, contents[name]))
		}
	}
	return serial, err
}

// issue makes a certificate for a node at an address. The files are named below the folder of the
// node; one without content is to be removed.
func (c *Certificates) issue(ip netip.Addr, t Trust) (files map[string][]byte, serial string, err error) {
	issued, err := c.authorities[t.Issuer].Issue(certs.NodeOptions{IPs: []netip.Addr{ip}, For: t.Lasts})
	if err != nil {
		return nil, "", err
	}
	serial = issued.Certificate.SerialNumber.Text(16)
	if t.Lasts > 0 {
		c.mu.Lock()
		c.short[serial] = issued
		c.mu.Unlock()
	}
	files = map[string][]byte{}
	if files[CertificateFile], files[KeyFile], err = issued.PEM(); err != nil {
		return nil, "", err
	}
	for i, a := range c.authorities {
		name := path.Join(RootsFolder, fmt.Sprintf("%d.crt", i))
		if files[name] = nil; t.Both || i == t.Issuer {
			files[name] = a.PEM()
		}
	}
	return files, serial, nil
}

// ending is a certificate that ends soon.
func (c *Certificates) ending(serial string) *certs.Issued {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.short[serial]
}

// pair is such a certificate with its key, and valid is one that lasts, for the same node.
func (c *Certificates) pair(serial string) (tls.Certificate, error) { return keyPair(c.ending(serial)) }

func (c *Certificates) valid(t Target, trust Trust) (tls.Certificate, error) {
	host, _, err := net.SplitHostPort(t.Peer)
	if err != nil {
		return tls.Certificate{}, err
	}
	issued, err := c.authorities[trust.Issuer].Issue(certs.NodeOptions{IPs: []netip.Addr{netip.MustParseAddr(host)}})
	if err != nil {
		return tls.Certificate{}, err
	}
	return keyPair(issued)
}

func keyPair(i *certs.Issued) (tls.Certificate, error) {
	certificate, key, err := i.PEM()
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certificate, key)
}

// Client is how clients connect to a node.
func (c *Certificates) Client() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.pool}
}

// Base is the address of a node.
func (c *Certificates) Base(hostPort string) string {
	if c == nil {
		return "http://" + hostPort
	}
	return "https://" + hostPort
}

// Login is who clients sign in as, nil where everyone may do everything.
func (c *Certificates) Login() *url.Userinfo {
	if c == nil {
		return nil
	}
	return administrator
}

const (
	// confirmLimit bounds how long the operator waits for one node to show its new certificate.
	confirmLimit = 30 * time.Second
	// staleLooks is so many new connections in a row that show another one, a second apart: then
	// the node has not taken it.
	staleLooks = 10
)

// strikeRenew gives nodes new certificates while they run: one node, all of them, or all of them in
// the three steps in which the authority is changed.
func strikeRenew(ctx context.Context, of *nemesis) (string, func(context.Context) error, error) {
	n := operator{of}
	what, nodes := "new certificates for all nodes", n.rng.Perm(n.hosts())
	switch n.rng.IntN(3) {
	case 0:
		node := n.anyVoter()
		what, nodes = "a new certificate for "+n.role(node), []int{node}
		fallthrough
	case 1:
		if err := n.renew(ctx, nodes, n.trust); !errors.Is(err, errNotTaken) {
			return what, nil, err
		}
		return what + ", given up", nil, nil
	}
	what, next := "another authority for all nodes", 1-n.trust.Issuer
	for step, trust := range []Trust{{Both: true, Issuer: n.trust.Issuer}, {Both: true, Issuer: next}, {Issuer: next}} {
		n.trust = trust
		switch err := n.renew(ctx, nodes, trust); {
		case errors.Is(err, errNotTaken) || ctx.Err() != nil:
			// Without every node having this step, the next one would cut some of them off.
			n.trust.Both = true
			return fmt.Sprintf("%s, given up after step %d", what, step), nil, nil
		case err != nil:
			return what, nil, err
		}
	}
	return what, nil, nil
}

// hosts is the number of nodes that can be started.
func (n operator) hosts() int {
	if n.size > 1 {
		return n.size + 1
	}
	return 1
}

var errNotTaken = errors.New("no answer shows that the certificate is used")

// renew gives certificates to nodes, one after the other. Half of the time the connections of each
// break then, so that the others must accept the new certificate at once.
func (n operator) renew(ctx context.Context, nodes []int, trust Trust) error {
	breaks := n.c.Can().Resets && n.rng.IntN(2) == 0
	var missed error
	for _, node := range nodes {
		serial, err := n.c.Certify(node, trust)
		if err != nil {
			return err
		}
		if !n.c.Running(node) {
			continue // It reads the files when it starts.
		}
		for _, t := range n.c.Targets() {
			if t.Index != node {
				continue
			}
			if err := n.confirm(ctx, t, serial, n.watch.http); err != nil {
				missed = err
			}
		}
		if breaks {
			if _, err := n.c.Reset(node, 1); err != nil {
				return err
			}
		}
	}
	return missed
}

// confirm has a node read its files again, by an order over one client, and looks until a new
// connection shows its certificate.
func (n operator) confirm(ctx context.Context, t Target, serial string, over *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	for stale, asked, late := 0, false, false; ; {
		if !asked {
			a, err := exchange(ctx, over, t, client.Request{Method: http.MethodPost, Path: "/admin/reloadconfig"}, 3*time.Second)
			asked = err == nil && a.Status/100 == 2
			ending := n.c.Certificates().ending(serial)
			late = ending != nil && time.Until(ending.Certificate.NotAfter) < DriftLimit
		} else if shown, err := shows(ctx, n.dial, n.c.Certificates().Client(), t); err == nil {
			if shown == serial {
				return nil
			}
			if stale++; stale == staleLooks {
				if n.excused.Load() > 0 || late {
					return errNotTaken // By its clock the certificate may not be valid.
				}
				n.find.add(kindCertificate, "%s has read its files again by order, and %d new "+
					"connections show the certificate %s, not %s", t.Name, stale, shown, serial)
				return errNotTaken
			}
		}
		if clock.Sleep(ctx, time.Second) != nil {
			return fmt.Errorf("%w: %s", errNotTaken, t.Name)
		}
	}
}

// shows connects to a node and returns the serial number of its certificate.
func shows(ctx context.Context, dial dialer, config *tls.Config, t Target) (serial string, err error) {
	conn, err := dial.orSystem()(ctx, "tcp", strings.TrimPrefix(t.Base, "https://"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	config.ServerName, _, _ = strings.Cut(strings.TrimPrefix(t.Base, "https://"), ":")
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return "", err
	}
	return secured.ConnectionState().PeerCertificates[0].SerialNumber.Text(16), nil
}
