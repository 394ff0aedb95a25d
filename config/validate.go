package config

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Validate makes every check that needs no disk. The error has one line for each
// mistake that keeps a node from starting.
func (c *Config) Validate() error { return errors.Join(c.validate()...) }

func (c *Config) validate() (problems []error) {
	refuse := func(when bool, format string, args ...any) {
		if when {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	refuse(c.ClusterSize <= 0, "ClusterSize must be greater than zero")
	refuse(c.ReadOnlyReplica && c.ClusterSize == 1, "ReadOnlyReplica needs a cluster: ClusterSize must be greater than 1")
	refuse(len(c.GossipSeed) > 1 && c.ClusterSize == 1, "several nodes in GossipSeed need a cluster: ClusterSize must be greater than 1")
	refuse(c.DiscoverViaDns && strings.TrimSpace(c.ClusterDns) == "", "DiscoverViaDns needs ClusterDns")
	refuse(c.DiskHangTimeout > 0 && c.DiskHangTimeout < c.LeaderElectionTimeout,
		"DiskHangTimeoutMs %d must not be below LeaderElectionTimeoutMs %d", c.DiskHangTimeout.Milliseconds(), c.LeaderElectionTimeout.Milliseconds())
	refuse(c.MaxAppendSize > MaxAppendSizeLimit, "MaxAppendSize must not exceed %d bytes", MaxAppendSizeLimit)

	refuse(c.Db == "", "Db must not be empty")
	for _, dir := range []struct{ option, path string }{{"Db", c.Db}, {"Index", c.Index}, {"Log", c.Log}} {
		byDb := dir.option == "Index" && !c.Given("Index") && dir.path == filepath.Join(c.Db, "index")
		refuse(strings.HasPrefix(dir.path, "~") && !byDb, "%s %q begins with ~, which only a shell understands", dir.option, dir.path)
	}
	refuse(c.Db != "" && samePath(c.Db, c.Index), "Db and Index must not be the same folder")

	for _, line := range c.backupProblems() {
		refuse(true, "%s", line)
	}

	if c.Insecure {
		for _, o := range c.table() {
			refuse(o.group == groupDefaultUser && (c.Given(o.name) || o.target.get() != o.def),
				"%s cannot be set together with Insecure: there are no users then", o.name)
		}
	} else {
		refuse(!c.hasCertificate() && !c.Dev && !c.DisableHttps && !c.NodeIp.IsLoopback(),
			"no certificate is configured, so plain HTTP is served on loopback addresses only: NodeIp %s needs "+
				"DisableHttps=true (plain HTTP with authentication, behind a proxy that does TLS) or Insecure=true (neither)", c.NodeIp)
		refuse(c.ClusterSize > 1 && !c.Secured() && !c.ReplicationIp.IsLoopback(),
			"no certificate is configured, so nodes connect to each other on loopback addresses only: ReplicationIp %s needs "+
				"a certificate (see annals certs) or Insecure=true", c.ReplicationIp)
	}
	refuse(c.ClusterSize > 1 && len(c.GossipSeed) == 0 && (!c.ViaDNS() || !c.Given("ClusterDns")), "a cluster needs GossipSeed, or DiscoverViaDns with ClusterDns, for its nodes to find each other")
	refuse(c.ClusterSize > 1 && c.SelfMadeCertificate(), "no other node knows the certificate that Dev makes: ClusterSize must be 1 (annals dev runs a cluster for development)")
	for _, o := range c.table() {
		// An option that asks for a missing feature must not be ignored in silence. Without TLS no
		// certificate is needed.
		needless := c.Insecure && o.group == groupCertificateStore
		must := "not be set"
		if o.def != "" {
			must = "be " + o.defaultText()
		}
		refuse(o.refused && !needless && !strings.EqualFold(c.current(&o), o.def), "%s: %s must %s", o.lacks, o.name, must)
	}
	return problems
}

// word finds the names of options in a sentence.
var word = regexp.MustCompile(`[A-Za-z0-9]+`)

// Located adds to an error where the options that it names were set.
func (c *Config) Located(err error) error {
	if places := c.settingsOf(err.Error()); places != "" {
		return fmt.Errorf("%w%s", err, places)
	}
	return err
}

// settingsOf says where the options that a sentence names were set, unless that was the command
// line: (NodeIp: /etc/annals/annals.conf line 3).
func (c *Config) settingsOf(sentence string) string {
	var places []string
	for _, name := range word.FindAllString(sentence, -1) {
		s, ok := c.given[name]
		if place := name + ": " + s.at; ok && s.source != sourceCommandLine && !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	if len(places) == 0 {
		return ""
	}
	return " (" + strings.Join(places, ", ") + ")"
}

// backupProblems says what is wrong with the place of backups. Other checks find out
// whether it can be written to, and whether the schedule is right.
func (c *Config) backupProblems() (lines []string) {
	s3, isS3 := strings.CutPrefix(c.BackupTo, "s3://")
	bucket, _, _ := strings.Cut(s3, "/")
	switch {
	case c.BackupTo == "":
		for _, o := range []struct{ name, value string }{{"BackupS3Endpoint", c.BackupS3Endpoint}, {"BackupSchedule", c.BackupSchedule}} {
			if strings.TrimSpace(o.value) != "" {
				lines = append(lines, o.name+" needs BackupTo: where the backups go")
			}
		}
		return lines
	case isS3 && bucket == "":
		lines = append(lines, fmt.Sprintf("BackupTo %q names no bucket: it must be of the form s3://bucket/prefix", c.BackupTo))
	case !isS3 && strings.Contains(c.BackupTo, "://"):
		lines = append(lines, fmt.Sprintf("BackupTo %q is neither a folder nor of the form s3://bucket/prefix", c.BackupTo))
	case !isS3 && strings.HasPrefix(c.BackupTo, "~"):
		lines = append(lines, fmt.Sprintf("BackupTo %q begins with ~, which only a shell understands", c.BackupTo))
	case !isS3 && (samePath(c.BackupTo, c.Db) || samePath(c.BackupTo, c.Index)):
		lines = append(lines, "BackupTo must not be the folder of Db or Index")
	}
	if c.BackupS3Endpoint != "" {
		u, err := url.Parse(c.BackupS3Endpoint)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil:
			lines = append(lines, "BackupS3Endpoint is not of the form https://host:port")
		case !isS3:
			lines = append(lines, "BackupS3Endpoint needs a BackupTo of the form s3://bucket/prefix")
		}
	}
	return lines
}

// samePath compares two folders by name. A path that cannot be made absolute is compared as it
// stands.
func samePath(a, b string) bool {
	if abs, err := filepath.Abs(a); err == nil {
		a = abs
	}
	if abs, err := filepath.Abs(b); err == nil {
		b = abs
	}
	return filepath.Clean(a) == filepath.Clean(b)
}
