package node

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/stats"
)

// certificates are those in force, and the metrics about them. Listeners and
// diallers, of clients and of nodes, ask the Store for every handshake.
type certificates struct {
	*certs.Store
	logger          hclog.Logger
	taken, rejected *stats.Counter
}

func newCertificates(store *certs.Store, r *stats.Registry, logger hclog.Logger) *certificates {
	const ends, reloads = "annals_certificate_not_after_timestamp_seconds", "annals_certificate_reloads_total"
	const endsHelp, reloadsHelp = "When the certificate in force expires, and when the first of the authorities above it does.", "Reloads of the certificates."
	seconds := func(end func(*certs.Set) time.Time) func() float64 {
		return func() float64 { return float64(end(store.Current()).Unix()) }
	}
	r.GaugeFunc(ends, endsHelp, seconds((*certs.Set).NodeExpires), stats.Label{Name: "certificate", Value: "node"})
	r.GaugeFunc(ends, endsHelp, seconds((*certs.Set).AuthorityExpires), stats.Label{Name: "certificate", Value: "authority"})
	return &certificates{
		Store: store, logger: logger,
		taken:    r.Counter(reloads, reloadsHelp, stats.Label{Name: "result", Value: "success"}),
		rejected: r.Counter(reloads, reloadsHelp, stats.Label{Name: "result", Value: "failure"}),
	}
}

// reload puts the certificates of the files in force, or changes nothing and returns false. It logs
// the result itself.
func (c *certificates) reload(files certs.Files) bool {
	set, err := certs.Reload(files)
	if err != nil {
		c.rejected.Inc()
		findings := []certs.Finding{{Severity: certs.SeverityError, Text: err.Error()}}
		if refused, ok := errors.AsType[*certs.LoadError](err); ok {
			findings = refused.Findings
		}
		for _, f := range findings {
			c.logger.Error("the certificates were not reloaded, the old ones stay in force", logkey.File, f.File, logkey.Reason, f.Text, "remedy", f.Remedy)
		}
		return false
	}
	c.Replace(set)
	c.taken.Inc()
	leaf := set.Certificate.Leaf
	c.logger.Info("certificates reloaded", "subject", leaf.Subject.String(), "serial", leaf.SerialNumber.Text(16),
		"ends", leaf.NotAfter.UTC().Format(time.RFC3339), "roots", set.RootCount, "reservedName", set.ReservedCN)
	c.report(set.Warnings)
	return true
}

// report logs findings that need attention.
func (c *certificates) report(findings []certs.Finding) {
	for _, f := range findings {
		level := hclog.Warn
		if f.Severity == certs.SeverityError {
			level = hclog.Error
		}
		c.logger.Log(level, "a certificate needs attention", "file", f.File, "finding", f.Text, "remedy", f.Remedy)
	}
}

// certificateCheck is how often the ends of the certificates are looked at.
const certificateCheck = 24 * time.Hour

// watch warns every day of certificates that are about to end. The first time was at the start.
func (c *certificates) watch(ctx context.Context, now func() time.Time) {
	for clock.Sleep(ctx, certificateCheck) == nil {
		c.report(c.Current().Expiring(now()))
	}
}

// ReloadCertificates has the node take the certificates over that a configuration names.
// It returns whether it has, and whether they are refused, and says itself why. Everything else of
// the configuration is ignored. Nothing happens to a node that makes its own
// certificate, or runs without: that takes a restart.
func (n *Node) ReloadCertificates(c *config.Config) (taken, refused bool) {
	switch {
	case n.security != nil && n.opts.Certificates == nil && n.config.CertificateFile != "":
		taken = n.security.reload(certificatesOf(n).files(c))
		return taken, !taken
	case c.CertificateFile != "" && !n.config.Insecure:
		n.logger.Warn("this node was started without a certificate, restart it to use the one that is configured now", logkey.File, c.CertificateFile)
	}
	return false, false
}
