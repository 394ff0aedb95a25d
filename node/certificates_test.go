package node

import (
	"bytes"
	"context"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication/gossip"
	"github.com/annalsdb/annals/stats"
)

// certificateKit is the folder of a node's certificates.
type certificateKit struct {
	t         *testing.T
	dir       string
	authority *certs.Authority
}

func newCertificateKit(t *testing.T) *certificateKit {
	t.Helper()
	k := &certificateKit{t: t, dir: t.TempDir()}
	k.newAuthority()
	return k
}

// newAuthority makes another authority, and has it trusted in addition to the earlier ones.
func (k *certificateKit) newAuthority() {
	k.t.Helper()
	var err error
	if k.authority, err = certs.NewAuthority(certs.AuthorityOptions{Key: certs.ECDSAP256}); err != nil {
		k.t.Fatal(err)
	}
	dir := k.t.TempDir()
	check.Must(k.t, k.authority.Write(dir, true))
	text := check.Value(os.ReadFile(filepath.Join(dir, certs.AuthorityCertificateFile))).Must(k.t)
	roots := filepath.Join(k.dir, "roots")
	check.Must(k.t, os.MkdirAll(roots, 0o700))
	check.Must(k.t, os.WriteFile(filepath.Join(roots, k.authority.Certificate.Subject.CommonName+".crt"), text, 0o600))
}

func (k *certificateKit) issue(o certs.NodeOptions) *certs.Issued {
	k.t.Helper()
	issued := check.Value(k.authority.Issue(o)).Must(k.t)
	check.Must(k.t, issued.Write(k.dir, true))
	return issued
}

func (k *certificateKit) config() *config.Config {
	c := config.Default()
	c.CertificateFile, c.CertificatePrivateKeyFile = filepath.Join(k.dir, certs.NodeCertificateFile), filepath.Join(k.dir, certs.NodeKeyFile)
	c.TrustedRootCertificatesPath = filepath.Join(k.dir, "roots")
	return c
}

// TestReloadCertificates: a good certificate is put in force with one log line. A bad one changes
// nothing and logs a line for each finding. Both are counted.
func TestReloadCertificates(t *testing.T) {
	k := newCertificateKit(t)
	local := certs.NodeOptions{DNSNames: []string{"localhost"}, IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	first := k.issue(local)
	var lines bytes.Buffer
	registry := new(stats.Registry)
	own := k.config()
	own.ClusterSize, own.DiscoverViaDns = 3, false
	n := &Node{config: own, opts: Options{Stats: registry}, logger: hclog.New(&hclog.LoggerOptions{Output: &lines, Level: hclog.Info})}
	n.security = check.Value(certificatesOf(n).open()).Must(t)
	cases := []struct {
		name   string
		change func(c *config.Config)
		want   []string // parts of the lines, in their order
	}{
		{"renewed", func(*config.Config) { first = k.issue(local) },
			[]string{"[INFO]  certificates reloaded: subject=CN=eventstoredb-node serial=SERIAL ends=END roots=1 reservedName=eventstoredb-node"}},
		{"another address", func(*config.Config) { k.issue(certs.NodeOptions{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}) },
			[]string{"node.crt reason=\"was not issued for 127.0.0.1, at which other nodes dial this one, but for 10.0.0.1\" remedy=\"have it issued with 127.0.0.1"}},
		{"key of another", func(*config.Config) {
			check.Must(t, os.Rename(filepath.Join(k.dir, "node.crt"), filepath.Join(k.dir, "kept")))
			k.issue(local)
			check.Must(t, os.Rename(filepath.Join(k.dir, "kept"), filepath.Join(k.dir, "node.crt")))
		}, []string{"was not issued for", "node.key reason=\"its private key does not belong to the certificate"}},
		{"no file", func(c *config.Config) { c.CertificateFile += ".gone" }, []string{"node.crt.gone reason=\"cannot be read: no such file"}},
		{"no option", func(c *config.Config) { c.CertificateFile = "" }, []string{"reason=\"no certificate is configured\" remedy=\"set CertificateFile\""}},
		{"another reserved name", func(c *config.Config) { k.issue(local); c.CertificateReservedNodeCommonName = "other" },
			[]string{`its common name \"eventstoredb-node\" does not match the reserved name \"other\"`}},
		{"no roots", func(c *config.Config) { c.TrustedRootCertificatesPath = t.TempDir() }, []string{"holds no trusted root certificate"}},
		{"two authorities", func(*config.Config) { k.newAuthority(); first = k.issue(local) }, []string{"roots=2 reservedName=eventstoredb-node"}},
		{"another name", func(c *config.Config) {
			first = k.issue(certs.NodeOptions{DNSNames: local.DNSNames, IPs: local.IPs, CommonName: "b.db.example.com"})
			c.CertificateReservedNodeCommonName = "*.db.example.com"
		}, []string{`reservedName="*.db.example.com"`}},
	}
	var taken, refused float64
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			lines.Reset()
			next := k.config()
			c.change(next)
			before := n.security.Current()
			ok, _ := n.ReloadCertificates(next)
			got := strings.Split(strings.TrimSuffix(lines.String(), "\n"), "\n")
			accepted := strings.Contains(got[0], "certificates reloaded: ")
			if ok != accepted || ok == (n.security.Current() == before) || len(got) != len(c.want) {
				t.Fatalf("taken over: %t, in force: %t\n%s", ok, n.security.Current() != before, &lines)
			}
			leaf := n.security.Current().Certificate.Leaf
			if !leaf.Equal(first.Certificate) {
				t.Errorf("in force is %s", leaf.SerialNumber.Text(16))
			}
			for i, want := range c.want {
				want = strings.NewReplacer("SERIAL", leaf.SerialNumber.Text(16), "END", leaf.NotAfter.UTC().Format(time.RFC3339)).Replace(want)
				if !strings.Contains(got[i], want) || !ok && !strings.Contains(got[i], "[ERROR] the certificates were not reloaded, the old ones stay in force: file=") {
					t.Errorf("%q is missing in: %s", want, got[i])
				}
			}
			if ok {
				taken++
			} else {
				refused++
			}
		})
	}
	metrics := map[string]float64{}
	registry.Each(func(s stats.Sample) {
		if strings.HasPrefix(s.Name, "annals_certificate_") {
			metrics[s.Name+"/"+s.Labels[0].Value] = s.Value
		}
	})
	for name, want := range map[string]float64{
		"annals_certificate_not_after_timestamp_seconds/node":      float64(first.Certificate.NotAfter.Unix()),
		"annals_certificate_not_after_timestamp_seconds/authority": float64(k.authority.Certificate.NotAfter.Unix()),
		"annals_certificate_reloads_total/success":                 taken,
		"annals_certificate_reloads_total/failure":                 refused,
	} {
		check.Equal(t, metrics[name], want, name)
	}
}

// TestNothingToReload: a node without certificates of its files stays as it is.
func TestNothingToReload(t *testing.T) {
	k := newCertificateKit(t)
	k.issue(certs.NodeOptions{DNSNames: []string{"localhost"}})
	cases := []struct {
		name string
		own  func(*config.Config)
		line string
	}{
		{"plain", func(*config.Config) {}, "restart it to use"},
		{"insecure", func(c *config.Config) { c.Insecure = true }, ""},
		{"insecure with a certificate", func(c *config.Config) { *c = *k.config(); c.Insecure = true }, ""},
		{"for development", func(c *config.Config) { c.Dev, c.MemDb = true, true }, "restart it to use"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var lines bytes.Buffer
			own := config.Default()
			c.own(own)
			n := &Node{config: own, opts: Options{Stats: new(stats.Registry)}, logger: hclog.New(&hclog.LoggerOptions{Output: &lines})}
			n.security = check.Value(certificatesOf(n).open()).Must(t)
			before := n.security
			if taken, refused := n.ReloadCertificates(k.config()); taken || refused || n.security != before || !strings.Contains(lines.String(), c.line) || c.line == "" && lines.Len() > 0 {
				t.Errorf("it was changed, or said:\n%s", &lines)
			}
		})
	}
}

// TestExpiryWarnings: from 30 days before the end there is one line a day.
func TestExpiryWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCertificateKit(t)
		k.issue(certs.NodeOptions{DNSNames: []string{"localhost"}, Days: 40})
		var mu sync.Mutex // of lines
		var lines bytes.Buffer
		n := &Node{config: k.config(), opts: Options{Stats: new(stats.Registry)}, logger: hclog.New(&hclog.LoggerOptions{Output: &lines, Mutex: &mu})}
		n.security = check.Value(certificatesOf(n).open()).Must(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			n.security.watch(ctx, time.Now)
		}()
		count := func(days int) (warnings, errors int) {
			mu.Lock()
			lines.Reset()
			mu.Unlock()
			time.Sleep(time.Duration(days) * 24 * time.Hour)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return strings.Count(lines.String(), "[WARN]"), strings.Count(lines.String(), "[ERROR]")
		}
		for _, step := range []struct{ days, warnings, errors int }{{9, 0, 0}, {5, 5, 0}, {25, 25, 0}, {4, 1, 3}} {
			if warnings, errors := count(step.days); warnings != step.warnings || errors != step.errors {
				t.Errorf("in %d days %d warnings and %d errors, want %d and %d\n%s", step.days, warnings, errors, step.warnings, step.errors, &lines)
			}
		}
		k.issue(certs.NodeOptions{DNSNames: []string{"localhost"}})
		if taken, _ := n.ReloadCertificates(k.config()); !taken {
			t.Fatalf("not reloaded\n%s", &lines)
		}
		if warnings, errors := count(10); warnings+errors > 0 {
			t.Errorf("the new one is warned of\n%s", &lines)
		}
		cancel()
		<-ended
	})
}

// TestDialledHost is the host that a node's certificate must name. A wrong one would go unnoticed
// until another node refuses this one.
func TestDialledHost(t *testing.T) {
	machine := "" // Where there is no network it is not known.
	if ip, err := gossip.MachineAddress(); err == nil {
		machine = ip.String()
	}
	cases := []struct{ name, args, want string }{
		{"on its own", "", ""},
		{"on its own, at all addresses", "--replication-ip 0.0.0.0", ""},
		{"on its own, named for others", "--replication-host-advertise-as a.example.com", "a.example.com"},
		{"on its own, address given", "--replication-ip 10.0.0.1", "10.0.0.1"},
		{"member", "--cluster-size 3 --replication-ip 10.0.0.1", "10.0.0.1"},
		{"member, address not given", "--cluster-size 3", "127.0.0.1"},
		{"member, named", "--cluster-size 3 --replication-ip 10.0.0.1 --replication-host-advertise-as a.example.com", "a.example.com"},
		{"member at all addresses", "--cluster-size 3 --replication-ip 0.0.0.0", machine},
		{"member at all addresses, named", "--cluster-size 3 --replication-ip :: --replication-host-advertise-as a.example.com", "a.example.com"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			args := append(strings.Fields(c.args), "--gossip-seed", "x:1", "--certificate-file", "x")
			read, err := config.Load(args, nil, func(string) ([]byte, error) { return nil, fs.ErrNotExist })
			check.Must(t, err)
			n := &Node{config: read, logger: hclog.NewNullLogger()}
			check.Equal(t, certificatesOf(n).dialledHost(), c.want)
			if hosts := certificatesOf(n).files(read).Hosts; len(hosts) != min(1, len(c.want)) {
				t.Errorf("the certificate must name one of %q", hosts)
			}
		})
	}
}
