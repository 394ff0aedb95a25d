package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/owner"
)

// TestConfigCheckAsRoot: the service is not root, and the check says what it may not do.
func TestConfigCheckAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may do what the service may not")
	}
	service := owner.ID{User: 65534, Group: 65534}
	name := owner.UserName(service.User)
	home := t.TempDir()
	for dir := home; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		check.Must(t, os.Chmod(dir, 0o755))
	}
	at := func(parts ...string) string { return filepath.Join(append([]string{home}, parts...)...) }
	command := func(args ...string) string {
		t.Helper()
		var out, complaints bytes.Buffer
		if code := run(args, &out, &complaints, runNode); code != 0 {
			t.Fatalf("%q: exit code %d\n%s%s", args, code, out.String(), complaints.String())
		}
		return out.String()
	}
	command("certs", "ca", "--out", at("ca"), "--key", "ecdsa-p256")
	command("certs", "node", "--ca", at("ca"), "--out", at("etc"), "--ip", "127.0.0.1")
	for _, err := range []error{
		os.Mkdir(at("roots"), 0o755),
		os.Rename(at("ca", "ca.crt"), at("roots", "ca.crt")),
		os.Mkdir(at("db"), 0o700), os.Chown(at("db"), service.User, service.Group),
		os.Mkdir(at("backup"), 0o755),
	} {
		check.Must(t, err)
	}
	for _, c := range []struct {
		name    string
		prepare func() error
		want    []string
	}{
		{"the key and the backups are root's", func() error { return nil }, []string{
			"may not read " + at("etc", "node.key") + ": " + at("etc", "node.key") + " belongs to root, mode 0600",
			"may not write to " + at("backup") + ": " + at("backup") + " belongs to root, mode 0755",
		}},
		{"all is given away", func() error {
			return errors.Join(os.Chown(at("etc", "node.key"), service.User, service.Group), os.Chown(at("backup"), 0, service.Group), os.Chmod(at("backup"), 0o770))
		}, nil},
		{"folders that cannot be entered", func() error { return errors.Join(os.Chmod(at("etc"), 0o700), os.Chmod(at("roots"), 0o711)) }, []string{
			"may not read " + at("etc", "node.crt") + ": " + at("etc") + " belongs to root, mode 0700",
			"may not list " + at("roots") + ": " + at("roots") + " belongs to root, mode 0711",
		}},
	} {
		check.Must(t, c.prepare())
		out := command("config", "check", "--config", "/dev/null", "--db", at("db"), "--certificate-file", at("etc", "node.crt"),
			"--certificate-private-key-file", at("etc", "node.key"), "--trusted-root-certificates-path", at("roots"), "--backup-to", at("backup", "node1"))
		for _, want := range c.want {
			if !strings.Contains(out, "warning: checked as root; the service runs as "+name+", who "+want) {
				t.Errorf("%s: %q is missing in:\n%s", c.name, want, out)
			}
		}
		if got := strings.Count(out, "checked as root"); got != len(c.want) {
			t.Errorf("%s: %d warnings in:\n%s", c.name, got, out)
		}
	}
}

// TestConfigCheckBackupTo: a place that cannot be written to is a warning, and nothing stays in one
// that can.
func TestConfigCheckBackupTo(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	check.Must(t, checkConfig([]string{"--db", filepath.Join(dir, "db"), "--backup-to", filepath.Join(os.Args[0], "backups")}, nil, os.ReadFile, &out))
	check.Contains(t, out.String(), "warning: option BackupTo: no backup can be written: ")
	out.Reset()
	check.Must(t, checkConfig([]string{"--db", filepath.Join(dir, "db"), "--backup-to", filepath.Join(dir, "backups", "node1")}, nil, os.ReadFile, &out))
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 || strings.Contains(out.String(), "BackupTo") {
		t.Errorf("%v, %v\n%s", left, err, out.String())
	}
}

// TestConfigCheckNamesOption: a finding about a file names the option that names the file.
func TestConfigCheckNamesOption(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	content := "CertificateFile: " + file("node.crt") + "\nCertificatePrivateKeyFile: " + file("node.key") + "\nTrustedRootCertificatesPath: " + file("roots") + "\n"
	readFile := func(string) ([]byte, error) { return []byte(content), nil }
	err := checkConfig([]string{"--config", "annals.conf"}, nil, readFile, &bytes.Buffer{})
	check.MustFail(t, err, "no error")
	for option, name := range map[string]string{"CertificateFile": "node.crt", "CertificatePrivateKeyFile": "node.key", "TrustedRootCertificatesPath": "roots"} {
		if want := "option " + option + ": " + file(name) + ": cannot be read"; !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}
