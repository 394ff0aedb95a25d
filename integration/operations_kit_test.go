package integration_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/lab"
	"github.com/annalsdb/annals/internal/testkit"
)

// operator is a person at a shell who runs a cluster as the page says, with a folder and with
// commands that reach the machines.
type operator struct {
	t       *testing.T
	cluster *cluster
	folder  string
	path    string   // where commands are searched
	env     []string // what else commands find in their environment
	jobs    chan job

	reloads  int       // of certificates, of all nodes
	reloaded func(int) // is called after each, and may be nil
}

// job is what a command has the test do to a machine.
type job struct {
	m    *member
	verb string
	done chan string
}

// machine is the folder for the files of a machine other than its data.
func machine(h *lab.Host, parts ...string) string {
	return filepath.Join(append([]string{h.Dir(), "machine"}, parts...)...)
}

// remoteCommands stand in for ssh and its like. What a script says of the folders
// of a machine is meant for those of its host.
var remoteCommands = map[string]string{
	"ssh": `machine=$1; shift
command=$*
home=$(readlink "$OPERATOR_MACHINES/$machine")
command=${command//\/etc\/annals/$home/machine/etc}
command=${command//\/etc\/systemd/$home/machine/systemd}
command=${command//\/usr\/bin\/annals/$home/machine/bin/annals}
command=${command//\/var\/lib\/annals/$home/db}
cd "$home" && OPERATOR_MACHINE=$machine PATH="$home/machine/bin:$PATH" exec bash -c "$command"`,
	"scp": `paths=()
for p in "$@"; do
  case $p in
    node?:*)
      home=$(readlink "$OPERATOR_MACHINES/${p%%:*}")
      p=${p#*:}
      p=${p/#\/etc\/annals/$home/machine/etc}
      p=${p/#\/usr\/bin\/annals/$home/machine/bin/annals}
      ;;
  esac
  paths+=("$p")
done
exec cp "${paths[@]}"`,
	"curl":       `PATH=$OPERATOR_PATH exec curl $OPERATOR_NAMES "$@"`,
	"systemctl":  `curl -fsS -X POST "$OPERATOR_CONTROL/$OPERATOR_MACHINE/$1"`,
	"journalctl": `curl -fsS -X POST "$OPERATOR_CONTROL/$OPERATOR_MACHINE/log"`,
	// The user annals of a machine is not there.
	"chown": `:`,
	"install": `args=()
while [ $# -gt 0 ]; do
  case $1 in
    -o | -g) [ $EUID = 0 ] && args+=("$1" "$OPERATOR_SERVICE"); shift ;;
    *) args+=("$1") ;;
  esac
  shift
done
PATH=$OPERATOR_PATH exec install "${args[@]}"`,
}

// newOperator makes the machines of a cluster: nodes that are not started yet, with
// certificates of an authority in the operator's folder.
func newOperator(t *testing.T, commonName string) *operator {
	t.Helper()
	o := newMachines(t, clusterOptions{
		options:  []string{"--follower-writes", "Forward"},
		security: func(h *lab.Host) []string { return []string{"--config", machine(h, "etc", "annals.conf")} },
	})
	run := func(args ...string) {
		t.Helper()
		if p, code := testkit.Run(t, testkit.Command{Args: append([]string{"certs"}, args...), Dir: o.folder, Quiet: true}); code != 0 {
			t.Fatalf("annals certs %s\n%s", strings.Join(args, " "), p.Output())
		}
	}
	run("ca", "--out", "ca", "--key", "ecdsa-p256")
	for i, m := range o.cluster.members {
		etc := machine(m.host, "etc")
		run("node", "--ca", "ca", "--out", etc, "--ip", m.host.Addr(), "--dns", nodeName(i), "--common-name", commonName)
		check.Must(t, os.Mkdir(filepath.Join(etc, "roots"), 0o755))
		copyInto(t, filepath.Join(o.folder, "ca", "ca.crt"), filepath.Join(etc, "roots"))
		var seeds []string // with the default of GossipPort, as configurations of old have it
		for _, other := range o.cluster.members {
			if other != m {
				seeds = append(seeds, other.host.Addr()+":1114")
			}
		}
		writeText(t, etc, "annals.conf", fmt.Sprintf("CertificateFile: %s/node.crt\nCertificatePrivateKeyFile: %s/node.key\nTrustedRootCertificatesPath: %s/roots\n"+
			"CertificateReservedNodeCommonName: %s\nDb: %s\nClusterSize: 3\nNodeIp: %s\nReplicationIp: %s\nDiscoverViaDns: false\nGossipSeed: %s\n",
			etc, etc, etc, commonName, m.db(), m.host.Addr(), m.host.Addr(), strings.Join(seeds, ",")))
	}
	return o
}

// newMachines makes machines that have the program and nothing else, and the commands that reach
// them. Clients of the cluster trust the authorities in the operator's folder.
func newMachines(t *testing.T, options clusterOptions) *operator {
	t.Helper()
	o := &operator{t: t, folder: t.TempDir(), jobs: make(chan job)}
	o.path = pathWithAnnals(t)
	options.tls = &tls.Config{InsecureSkipVerify: true, VerifyConnection: o.verify}
	o.cluster = newCluster(t, options)
	machines, bin, shared := t.TempDir(), t.TempDir(), filepath.Join(o.folder, "backup")
	check.Must(t, os.Mkdir(shared, 0o755))
	var names []string
	for i, m := range o.cluster.members {
		for _, dir := range []string{"etc", "bin"} {
			check.Must(t, os.MkdirAll(machine(m.host, dir), 0o755))
		}
		names = append(names, fmt.Sprintf("--connect-to %s:%d:%s:%d", nodeName(i), clientPort, m.host.Addr(), clientPort))
		for _, link := range [][2]string{{m.host.Dir(), filepath.Join(machines, nodeName(i))}, {testkit.Binary(t), machine(m.host, "bin", "annals")}} {
			check.Must(t, os.Symlink(link[0], link[1]))
		}
	}
	for name, text := range remoteCommands {
		check.Must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/usr/bin/env bash\nset -e\n"+text+"\n"), 0o755))
	}
	control := httptest.NewServer(http.HandlerFunc(o.control))
	t.Cleanup(control.Close)
	for k, v := range map[string]string{
		"OPERATOR_SERVICE": fmt.Sprint(serviceUser), "OPERATOR_MACHINES": machines, "OPERATOR_CONTROL": control.URL, "OPERATOR_PATH": o.path, "OPERATOR_NAMES": strings.Join(names, " "),
	} {
		o.env = append(o.env, k+"="+v)
	}
	o.path = bin + string(os.PathListSeparator) + o.path
	return o
}

func nodeName(i int) string { return fmt.Sprintf("node%d", i+1) }

// verify trusts every authority in the operator's folder, as clients do while it changes.
func (o *operator) verify(state tls.ConnectionState) error {
	files, err := filepath.Glob(filepath.Join(o.folder, "ca*", "ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			roots.AppendCertsFromPEM(text)
		}
	}
	_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: state.ServerName})
	return err
}

// control passes what a command wants of a machine on to the test.
func (o *operator) control(w http.ResponseWriter, r *http.Request) {
	name, verb, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	for i, m := range o.cluster.members {
		if nodeName(i) != name {
			continue
		}
		j := job{m: m, verb: verb, done: make(chan string, 1)}
		select {
		case o.jobs <- j:
		case <-r.Context().Done():
			return
		}
		select {
		case text := <-j.done:
			_, _ = io.WriteString(w, text) // The script may have ended.
		case <-r.Context().Done():
		}
		return
	}
	http.NotFound(w, r)
}

// do does what the service manager of a machine would do.
func (o *operator) do(j job) string {
	m := j.m
	switch j.verb {
	case "log":
		return m.process.Output()
	case "stop":
		if m.process != nil {
			m.stop()
			o.giveToService(m)
		}
	case "start", "enable":
		o.ownedByService(m)
		m.start()
	case "restart":
		m.stop()
		m.start()
	case "reload":
		o.reload(m)
		o.reloads++
		if o.reloaded != nil {
			o.reloaded(o.reloads)
		}
	case "daemon-reload":
	default:
		return "what is " + j.verb + "?\n"
	}
	return ""
}

// serviceUser stands for the user annals of a machine. The nodes of a test run as its own user.
const serviceUser = 65534

// giveToService makes the data of a stopped node belong to the service, as if that had written
// them. A test that is not run as root has no other users.
func (o *operator) giveToService(m *member) {
	o.t.Helper()
	o.data(m, func(path string, _ fs.FileInfo) error { return os.Lchown(path, serviceUser, serviceUser) })
}

// ownedByService demands that the service could read and write the data of a node: the operator's
// commands run as root.
func (o *operator) ownedByService(m *member) {
	o.t.Helper()
	o.data(m, func(path string, info fs.FileInfo) error {
		if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Uid != serviceUser {
			o.t.Errorf("%s belongs to user %d when the service is started", path, s.Uid)
		}
		return nil
	})
}

// data visits the data folder of a node and all that is in it.
func (o *operator) data(m *member, visit func(path string, info fs.FileInfo) error) {
	o.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	err := filepath.WalkDir(m.db(), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == m.db() {
			return nil // The service makes it.
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return visit(path, info)
	})
	check.NoError(o.t, err)
}

// reload has a node read its files, by signal or by request in turn, and waits until it has.
func (o *operator) reload(m *member) {
	o.t.Helper()
	const done = "configuration reloaded" // also when the certificates were refused
	before := strings.Count(m.process.Output(), done)
	if o.reloads%2 == 1 {
		m.order("/admin/reloadconfig")
	} else if err := m.process.Signal(syscall.SIGHUP); err != nil {
		o.t.Fatal(err)
	}
	testkit.Eventually(o.t, settleLimit, func() error {
		if strings.Count(m.process.Output(), done) == before {
			return fmt.Errorf("%s has not read its files", m)
		}
		return nil
	})
}

// follow runs the scripts of one procedure of the page of operations.
func (o *operator) follow(procedure string) {
	o.t.Helper()
	o.read(operationsPage, procedure)
}

// read runs the scripts of one section of a page, of all without a name, and compares what they
// print.
func (o *operator) read(page, section string) {
	o.t.Helper()
	examples, _ := readExamples(o.t, page)
	ran := 0
	for _, e := range examples {
		if section != "" && e.section != section {
			continue
		}
		ran++
		out, err := o.run(e.script)
		if err != nil {
			o.t.Fatalf("%s:%d: %v\n%s\n--- printed ---\n%s", page, e.line, err, e.script, out)
		}
		if missing := e.missing(out, nil); missing != "" {
			o.t.Errorf("%s:%d: %q does not occur, or not in this order, in what this prints:\n%s\n--- printed ---\n%s", page, e.line, missing, e.script, out)
		}
	}
	if ran == 0 {
		o.t.Errorf("%s has no section %q", page, section)
	}
}

// run runs a script, and does meanwhile what it wants of the machines.
func (o *operator) run(script string) (printed string, err error) {
	addresses := []string{"sleep 1;", "sleep 0.1;", " /backup", " " + filepath.Join(o.folder, "backup")}
	for i, m := range o.cluster.members {
		addresses = append(addresses, "//"+nodeName(i)+":", "//"+m.host.Addr()+":", fmt.Sprintf("10.0.0.%d", i+1), m.host.Addr())
	}
	command := exec.CommandContext(o.t.Context(), "bash", "-ec", strings.NewReplacer(addresses...).Replace(script))
	command.Dir = o.folder
	command.Env = slices.Concat(os.Environ(), o.env, []string{"PATH=" + o.path, "ANNALS_PASSWORD=changeit"})
	command.WaitDelay = 5 * time.Second
	type result struct {
		out []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := command.CombinedOutput()
		done <- result{out, err}
	}()
	limit := time.NewTimer(settleLimit)
	defer limit.Stop()
	for {
		select {
		case r := <-done:
			return string(r.out), r.err
		case j := <-o.jobs:
			j.done <- o.do(j)
		case <-limit.C:
			return "", errors.Join(fmt.Errorf("it takes longer than %s", settleLimit), command.Process.Kill())
		}
	}
}
