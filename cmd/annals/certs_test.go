package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/internal/check"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// runCerts runs the command and returns its exit code.
func runCerts(args ...string) (code int, stdout, stderr string) {
	var out, complaints bytes.Buffer
	code = run(append([]string{"certs"}, args...), &out, &complaints, func([]string, io.Writer, io.Writer) error {
		return errors.New("a node was started")
	})
	return code, out.String(), complaints.String()
}

// digests and serial numbers differ from run to run.
var digests = regexp.MustCompile(`[0-9a-f]{64}|"serial": "[0-9a-f]+"`)

// TestCertsGolden runs command lines one after the other in an empty folder and
// compares everything they print with a file. The clock stands at the beginning of 2000.
func TestCertsGolden(t *testing.T) {
	golden := check.Value(filepath.Abs("testdata")).Must(t)
	const node = "--certificate-file node1/node.crt --certificate-private-key-file node1/node.key"
	scripts := map[string][]string{
		"certs_help": {"", "ca --help", "node --help", "check --help", "renew --help"},
		"certs_make": {
			"ca --out ca --name Test --key ecdsa-p256",
			"ca --out ca",
			"ca --out ca --name Test --key ecdsa-p256 --days 100 --force",
			"node --ca ca --out node1 --dns node1.example.com,localhost --ip 10.0.0.1,::1",
			"node --ca ca --out node1 --dns node1.example.com",
			"node --ca ca --out node2 --dns node2.example.com --common-name *.example.com --days 20",
			"node --ca ca --out node3",
			"node --ca ca --out node3 --ip node3",
			"node --ca ca --out node3 --dns 10.0.0.3",
			"node --ca ca --out node3 --dns node3 --days 200",
			"node --ca nowhere --out node3 --dns node3",
			"node --out node3 --dns node3",
			"ca",
			"ca --out x --key dsa",
			"make",
		},
		"certs_renew": {
			"ca --out ca --name Test --key ecdsa-p256 --days 100",
			"ca --out short --name Short --key ecdsa-p256 --days 20",
			"node --ca ca --out node1 --dns node1.example.com,localhost --ip 10.0.0.1 --days 60",
			"renew --ca ca --certificate-file node1/node.crt --out next",
			"renew --ca ca --certificate-file node1/node.crt --out next",
			"renew --ca ca --certificate-file node1/node.crt --out next --force --common-name *.example.com --days 5 --json",
			"renew --ca ca " + node + " --replace",
			"renew --ca ca " + node + " --replace",
			"check " + node + " --trusted-root-certificates-path ca",
			"renew --ca short --certificate-file node1/node.crt --out other --key rsa-2048",
			"renew --ca short --certificate-file node1/node.crt --out other2 --days 60",
			"renew --ca nowhere --certificate-file node1/node.crt --out other2",
			"renew --ca ca --certificate-file node1/node.key --out other2",
			"renew --ca ca --certificate-file nothing --out other2",
			"renew --ca ca --certificate-file node1/node.crt --out other2 --key dsa",
			"renew --ca ca",
			"renew --ca ca --certificate-file node1/node.crt",
			"renew --ca ca --certificate-file node1/node.crt --replace",
			"renew --ca ca " + node + " --replace --out x",
			"renew x",
			"renew --certificates x",
		},
		"certs_check": {
			"ca --out ca --name Test --key ecdsa-p256",
			"ca --out foreign --name Foreign --key ecdsa-p256",
			"node --ca ca --out node1 --dns node1.example.com,localhost --ip 10.0.0.1",
			"node --ca ca --out node2 --dns node2.example.com --common-name *.example.com --days 20",
			"check " + node + " --trusted-root-certificates-path ca",
			"check " + node + " --trusted-root-certificates-path ca --json",
			"check " + node + " --trusted-root-certificates-path foreign --certificate-reserved-node-common-name *.example.com",
			"check " + node + " --trusted-root-certificates-path ca --host 10.0.0.1",
			"check " + node + " --trusted-root-certificates-path ca --host 10.0.0.9",
			"check --certificate-file node2/node.crt --certificate-private-key-file node1/node.key --trusted-root-certificates-path ca",
			"check --certificate-file node2/node.crt --certificate-private-key-file node2/node.key --trusted-root-certificates-path ca --json",
			"check --certificate-file nothing --trusted-root-certificates-path nowhere",
			"check --certificate-file nothing --trusted-root-certificates-path nowhere --json",
			"check",
			"check x",
			"check --certificates x",
		},
	}
	for name, lines := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			synctest.Test(t, func(t *testing.T) {
				var all strings.Builder
				for _, line := range lines {
					code, stdout, stderr := runCerts(strings.Fields(line)...)
					if code != 0 {
						stderr += "exit code " + string(rune('0'+code)) + "\n"
					}
					all.WriteString(strings.TrimSpace("$ annals certs "+line) + "\n" + stdout + stderr + "\n")
				}
				got := digests.ReplaceAllString(all.String(), "DIGEST")
				file := filepath.Join(golden, name+".golden")
				if *update {
					check.Must(t, os.WriteFile(file, []byte(got), 0o644))
				}
				want := check.Value(os.ReadFile(file)).Must(t)
				if got != string(want) {
					t.Errorf("%s differs (rewrite it with -update and review the diff):\n%s", file, got)
				}
			})
		})
	}
}

// Passwords come from the environment as for a node, and an option wins.
func TestCertsCheckPasswords(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, line := range []string{"ca --out ca --key ecdsa-p256", "node --ca ca --out n --dns localhost"} {
		if code, _, stderr := runCerts(strings.Fields(line)...); code != 0 {
			t.Fatal(stderr)
		}
	}
	// A key that asks for a password is refused at once without one.
	check.Must(t, os.WriteFile("n/node.key", []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"), 0o600))
	check := strings.Fields("check --json --certificate-file n/node.crt --certificate-private-key-file n/node.key --trusted-root-certificates-path ca")
	cases := []struct {
		name        string
		environment map[string]string
		args        []string
		asked       bool // whether a password is missing
	}{
		{"none", nil, nil, true},
		{"ours", map[string]string{"STORE_CERTIFICATE_PRIVATE_KEY_PASSWORD": "x"}, nil, false},
		{"KurrentDB's", map[string]string{"KURRENTDB_CERTIFICATE_PRIVATE_KEY_PASSWORD": "x"}, nil, false},
		{"EventStoreDB's", map[string]string{"EVENTSTORE_CERTIFICATE_PRIVATE_KEY_PASSWORD": "x"}, nil, false},
		{"ours wins", map[string]string{"EVENTSTORE_CERTIFICATE_PRIVATE_KEY_PASSWORD": "x", "STORE_CERTIFICATE_PRIVATE_KEY_PASSWORD": ""}, nil, true},
		{"option", nil, []string{"--certificate-private-key-password", "x"}, false},
		{"option wins", map[string]string{"STORE_CERTIFICATE_PRIVATE_KEY_PASSWORD": "x"}, []string{"--certificate-private-key-password="}, true},
		{"of another kind", map[string]string{"STORE_CERTIFICATE_PASSWORD": "x"}, nil, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for k, v := range c.environment {
				t.Setenv(k, v)
			}
			code, stdout, stderr := runCerts(append(check, c.args...)...)
			var d certsDocument
			if err := json.Unmarshal([]byte(stdout), &d); err != nil || code != 1 || stderr != "" || len(d.Findings) != 1 {
				t.Fatalf("code %d, %v\n%s%s", code, err, stdout, stderr)
			}
			if asked := strings.Contains(d.Findings[0].Text, "no password is configured"); asked != c.asked {
				t.Errorf("found %+v", d.Findings)
			}
		})
	}
}

// TestCertsKeep: what a container runs at each start makes the files once.
func TestCertsKeep(t *testing.T) {
	dir := t.TempDir()
	ca, node := filepath.Join(dir, "ca"), filepath.Join(dir, "node")
	commands := [][]string{
		{"certs", "ca", "--out", ca, "--key", "ecdsa-p256", "--keep"},
		{"certs", "node", "--ca", ca, "--out", node, "--dns", "localhost", "--keep"},
	}
	made := map[string]string{}
	for round := range 2 {
		for _, args := range commands {
			var out, said bytes.Buffer
			check.MustEqual(t, run(args, &out, &said, nil), 0, args, &said)
			if kept := strings.Contains(out.String(), "nothing was changed"); kept != (round == 1) {
				t.Errorf("%v, round %d: %s", args, round, &out)
			}
		}
		for _, file := range []string{ca + "/ca.crt", ca + "/ca.key", node + "/node.crt", node + "/node.key"} {
			text := check.Value(os.ReadFile(file)).Must(t)
			if round == 1 && made[file] != string(text) {
				t.Errorf("%s changed", file)
			}
			made[file] = string(text)
		}
	}
}
