package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/check"
)

// runLine runs a command line without a node.
func runLine(args ...string) (code int, stdout, stderr string) {
	var out, complaints bytes.Buffer
	code = run(args, &out, &complaints, func([]string, io.Writer, io.Writer) error { return nil })
	return code, out.String(), complaints.String()
}

// everyCommand are all commands, hidden ones too, but those of the shells' completion.
func everyCommand(cmd *cobra.Command) (list []*cobra.Command) {
	for _, below := range cmd.Commands() {
		list = append(append(list, below), everyCommand(below)...)
	}
	return list
}

// TestBadUsage: every command answers unknown flags and surplus arguments with exit code 2. The
// options of a node are the exception: its contract is exit code 1.
func TestBadUsage(t *testing.T) {
	for _, cmd := range everyCommand(newRoot(io.Discard, io.Discard, nil)) {
		path := strings.Fields(cmd.CommandPath())[1:]
		if path[0] == "help" || slices.Contains(path, "node") && len(path) == 1 {
			continue
		}
		t.Run(strings.Join(path, " "), func(t *testing.T) {
			bad := [][]string{{"--no-such-flag"}, {"a", "b", "c", "d"}}
			if cmd.DisableFlagParsing && cmd.Name() != "dev" && cmd.Name() != "check" {
				return // recover and accept-loss end as the node does.
			}
			for _, more := range bad {
				if code, stdout, stderr := runLine(append(slices.Clone(path), more...)...); code != 2 || stdout != "" || !strings.HasPrefix(stderr, "annals: ") {
					t.Errorf("%q: code %d\n%s%s", more, code, stdout, stderr)
				}
			}
		})
	}
}

func TestNearestNames(t *testing.T) {
	for line, want := range map[string]string{
		"scavange":                   `unknown command "scavange", did you mean annals scavenge?`,
		"start":                      `unknown command "start", did you mean annals node?`,
		"serve --db x":               `unknown command "serve", did you mean annals node?`,
		"run":                        `unknown command "run", did you mean annals node?`,
		"server":                     `unknown command "server", did you mean annals node?`,
		"help server":                `unknown command "server", did you mean annals node?`,
		"bench append --bas x":       "unknown flag: --bas, see annals bench append --help",
		"backup verfy":               `unknown command "verfy", did you mean annals backup verify?`,
		"no-such-thing":              `unknown command "no-such-thing", see annals --help`,
		"verify --dbb x":             "unknown flag: --dbb, did you mean --db?",
		"doctor --nod x":             "unknown flag: --nod, did you mean --node?",
		"help scavenge strat":        `unknown command "strat", did you mean annals scavenge start?`,
		"projection list --kind=ony": `--kind "ony" is none of any, all-non-transient, continuous, onetime, transient, did you mean any?`,
		"bench append --rate=-1":     "--rate -1 is not between 0 and a billion",
		"projection test x":          `required flag(s) "events" not set`,
	} {
		if code, _, stderr := runLine(strings.Fields(line)...); code != 2 || stderr != "annals: "+want+"\n" {
			t.Errorf("%s: code %d, %s", line, code, stderr)
		}
	}
}

func TestVersionAsJSON(t *testing.T) {
	code, stdout, stderr := runLine("version", "--json")
	var got versionDocument
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || stderr != "" {
		t.Fatalf("code %d, %v\n%s", code, err, stderr)
	}
	if got.Version != buildVersion() || got.Go != runtime.Version() || got.OS != runtime.GOOS || got.Arch != runtime.GOARCH {
		t.Errorf("%+v", got)
	}
}

func TestConfirmation(t *testing.T) {
	for _, c := range []struct {
		name     string
		confirm  confirmation
		terminal bool
		typed    string
		refused  string
	}{
		{"yes is typed", confirmation{}, true, "y\n", ""},
		{"the word is typed", confirmation{}, true, " YES \n", ""},
		{"nothing is typed", confirmation{}, true, "\n", "not confirmed; nothing was changed"},
		{"the end is typed", confirmation{}, true, "", "not confirmed; nothing was changed"},
		{"no terminal", confirmation{}, false, "y\n", ""},
		{"no terminal, and it matters", confirmation{refuseUnwanted: true}, false, "y\n", "All is lost: without a terminal, confirm it with --yes"},
		{"no terminal, and it matters, with --yes", confirmation{refuseUnwanted: true, yes: true}, false, "", ""},
		{"a terminal, with --yes", confirmation{yes: true}, true, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stderr bytes.Buffer
			c.confirm.stdin, c.confirm.stderr, c.confirm.isTerminal = strings.NewReader(c.typed), &stderr, func() bool { return c.terminal }
			err := c.confirm.given("All is lost")
			if got := ""; err != nil {
				got = err.Error()
				if got != c.refused {
					t.Errorf("refused: %s", got)
				}
			} else if c.refused != "" {
				t.Error("not refused")
			}
			asked := c.terminal && !c.confirm.yes
			if (stderr.String() == "All is lost. Continue? [y/N] ") != asked || !asked && stderr.Len() > 0 {
				t.Errorf("asked %q", &stderr)
			}
		})
	}
}

// TestCommandsThatConfirm are those whose work cannot be undone.
func TestCommandsThatConfirm(t *testing.T) {
	var got []string
	for _, cmd := range everyCommand(newRoot(io.Discard, io.Discard, nil)) {
		if cmd.Flags().Lookup("yes") != nil || strings.Contains(cmd.Use, "--yes") {
			got = append(got, strings.TrimPrefix(cmd.CommandPath(), "annals "))
		}
	}
	slices.Sort(got)
	want := []string{"backup prune", "cluster accept-loss", "cluster recover", "cluster remove",
		"group delete", "group parked drop", "group reset", "projection delete", "projection reset", "redact", "user remove"}
	check.Slice(t, got, want)
}

// TestCommandReference keeps docs/cli.md equal to the help texts.
func TestCommandReference(t *testing.T) {
	t.Setenv("TMPDIR", "") // A default names the folder of temporary files.
	const file = "../../docs/cli.md"
	got := commandReference(newRoot(io.Discard, io.Discard, nil))
	if *update {
		check.Must(t, os.WriteFile(file, got, 0o644))
	}
	want := check.Value(os.ReadFile(file)).Must(t)
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the help texts (rewrite it with -update and review the diff)", file)
	}
}

// TestManPages: each command that users see has a page, with its flags.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	if code, _, stderr := runLine("docs", "--man", dir); code != 0 {
		t.Fatal(stderr)
	}
	for _, cmd := range documented(newRoot(io.Discard, io.Discard, nil)) {
		page, err := os.ReadFile(filepath.Join(dir, manName(cmd)+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !bytes.Contains(page, []byte(`\-\-`+strings.ReplaceAll(f.Name, "-", `\-`))) {
				t.Errorf("%s lacks --%s", cmd.CommandPath(), f.Name)
			}
		})
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".T") && !strings.HasPrefix(line, ".S") &&
				!strings.HasPrefix(line, ".P") && !strings.HasPrefix(line, ".B") && line != ".nf\n" && line != ".fi\n" {
				t.Errorf("%s: a line that man takes for a command: %s", cmd.CommandPath(), line)
			}
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "annals-node.1")); err != nil || !bytes.Contains(text, []byte(`\-\-cluster\-size`)) {
		t.Errorf("annals-node.1 lacks the options: %v", err)
	}
}

// TestCompletion: the shells learn commands, flags, values and the options of a node.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, stdout, _ := runLine("completion", shell); code != 0 || !strings.Contains(stdout, "annals") {
			t.Errorf("%s: code %d", shell, code)
		}
	}
	for line, want := range map[string]string{
		"sca":                             "scavenge",
		"backup ":                         "restore",
		"backup create --thr":             "--throttle-mib",
		"scavenge start --progress ":      "lines",
		"node --cluster-s":                "--cluster-size",
		"node --run-projections ":         "System",
		"node --run-projections=s":        "--run-projections=System",
		"config check --insecure=":        "--insecure=true",
		"help scavenge ":                  "dry-run",
		"cluster recover --replication-p": "--replication-port",
	} {
		var args []string
		for word := range strings.SplitSeq(line, " ") {
			args = append(args, word)
		}
		code, stdout, _ := runLine(append([]string{cobra.ShellCompRequestCmd}, args...)...)
		if code != 0 || !slices.ContainsFunc(strings.Split(stdout, "\n"), func(s string) bool { name, _, _ := strings.Cut(s, "\t"); return name == want }) {
			t.Errorf("%s: code %d, %s", line, code, stdout)
		}
	}
}

// TestConfigCheck: all mistakes at once, each with its place.
func TestConfigCheck(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "annals.conf")
	write := func(text string) { check.Must(t, os.WriteFile(file, []byte(text), 0o600)) }
	expectConfig := func(code int, stdout, stderr string, args ...string) {
		t.Helper()
		gotCode, out, complaints := runLine(append([]string{"config", "check", "--config", file}, args...)...)
		if gotCode != code || out != stdout || complaints != stderr {
			t.Errorf("code %d\n%s%s", gotCode, out, complaints)
		}
	}
	write("Db: " + dir + "/data\nReaderThreadsCount: 4\n")
	expectConfig(0, "warning: set, but without effect here: ReaderThreadsCount ("+file+" line 2)\nthe configuration is correct ("+file+" was read)\n", "")

	write("NodePort: x\n\nClutserSize: 3\n")
	expectConfig(2, "", "annals: option NodePort ("+file+" line 1): \"x\" is not a whole number\n"+
		"annals: unknown option \"ClutserSize\" ("+file+" line 3), did you mean ClusterSize?\n")

	write("Db: " + file + "\nBackupTo: /backups\nBackupSchedule: daily\nWebDir: " + dir + "\n")
	expectConfig(2, "", "annals: option WebDir: index.html of "+dir+": no such file or directory (WebDir: "+file+" line 4)\n"+
		"annals: option Db: "+file+" is not a folder (Db: "+file+" line 1)\n"+
		"annals: option BackupSchedule: cron expression \"daily\": it has 1 fields and needs five: minute, hour, day of the month, month, day of the week; or @daily and the like (BackupSchedule: "+file+" line 3)\n")

	write("CertificateFile: " + dir + "/node.crt\nCertificatePrivateKeyFile: " + dir + "/node.key\nTrustedRootCertificatesPath: " + dir + "\n")
	code, _, stderr := runLine("config", "check", "--config", file)
	if code != 2 || !strings.Contains(stderr, "node.crt: cannot be read") || !strings.Contains(stderr, "(CertificateFile: "+file+" line 1)") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if code, stdout, _ := runLine("config", "check", "--help"); code != 0 || !strings.Contains(stdout, "every mistake") {
		t.Errorf("help: code %d, %s", code, stdout)
	}
}

// TestHealth: the exit code says what a node answers, over HTTP and HTTPS.
func TestHealth(t *testing.T) {
	answers := map[string]int{"/health/live": http.StatusNoContent, "/health/ready": http.StatusServiceUnavailable}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check.Equal(t, r.Header.Get("Authorization"), "", "credentials were sent")
		w.WriteHeader(answers[r.URL.Path])
		if answers[r.URL.Path] != http.StatusNoContent {
			_, _ = io.WriteString(w, "the leader is not known")
		}
	})
	t.Setenv(passwordVariable, "secret")
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	roots := t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	check.Must(t, os.WriteFile(filepath.Join(roots, "ca.crt"), authority, 0o600))
	host := func(s *httptest.Server) string { return client.Response{Node: s.URL}.Host() }
	own := func(s *httptest.Server, more ...string) map[string]string {
		_, port, _ := strings.Cut(host(s), ":")
		env := map[string]string{"STORE_NODE_PORT": port}
		for _, name := range more {
			env[name] = "x"
		}
		return env
	}
	cases := []struct {
		name   string
		args   string
		env    map[string]string
		code   int
		output string // of both, a part
	}{
		{"live", "--live --node " + plain.URL, nil, 0, host(plain) + " is live\n"},
		{"not ready", "--node " + plain.URL, nil, 1, host(plain) + " is not ready: the leader is not known\n"},
		{"not ready in time", "--wait 300ms --node " + plain.URL, nil, 1, "is not ready"},
		{"of this machine", "--live", own(plain), 0, host(plain) + " is live\n"},
		{"of this machine, with a certificate", "--live", own(secure, "KURRENTDB_CERTIFICATE_FILE"), 0, host(secure) + " is live\n"},
		{"at all addresses", "--live", map[string]string{"EVENTSTORE_INSECURE": "true", "STORE_NODE_IP": "0.0.0.0", "STORE_NODE_PORT": own(plain)["STORE_NODE_PORT"]}, 0, "is live\n"},
		{"any certificate", "--live --insecure-skip-verify --node " + secure.URL, nil, 0, "is live\n"},
		{"trusted certificate", "--live --ca " + roots + " --node " + secure.URL, nil, 0, "is live\n"},
		{"unknown certificate", "--live --node " + secure.URL, nil, 1, "the certificate of " + host(secure) + " is not trusted"},
		{"nothing there", "--node http://127.0.0.1:1", nil, 1, "no node listens there"},
		{"another kind of server", "--node " + plain.URL + "/x", nil, 1, "is it a node?"},
		{"wrong configuration", "", map[string]string{"STORE_NODE_PORT": "x"}, 1, "option NODE_PORT (STORE_NODE_PORT)"},
		{"two ways to name it", "--config x --node y", nil, 2, "none of the others can be"},
		{"no address", "--node ftp://x", nil, 2, "is not of the form"},
	}
	answers["/x/health/ready"] = http.StatusNotFound
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			code, stdout, stderr := runLine(append([]string{"health"}, strings.Fields(c.args)...)...)
			if all := stdout + stderr; code != c.code || !strings.Contains(all, c.output) {
				t.Errorf("code %d, %s", code, all)
			}
		})
	}
}
