package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// eventually is how long a test waits for what is about to happen.
const eventually = time.Minute

// logged returns nil when the text is in the log.
func (w *world) logged(text string) error {
	if log := w.err.String(); !strings.Contains(log, text) {
		return fmt.Errorf("the log lacks %q:\n%s", text, log)
	}
	return nil
}

func TestReload(t *testing.T) {
	const before, other = hclog.Info, "LogLevel: Error"
	cases := []struct {
		name  string
		args  string
		env   []string
		file  string // "": there is none
		level hclog.Level
		log   string // a part of what is logged
	}{
		{"level of the file", "--config c.yaml", nil, other, hclog.Error, ""},
		{"level in another case", "--config c.yaml", nil, "log-level: verbose", hclog.Trace, "configuration reloaded"},
		{"Default", "--config c.yaml", nil, "LogLevel: Default", before, "configuration reloaded"},
		{"no level in the file", "--config c.yaml", nil, "NodePort: 5", before, "configuration reloaded"},
		{"command line over file", "--config c.yaml --log-level debug", nil, other, hclog.Debug, "configuration reloaded"},
		{"environment over file", "--config c.yaml", []string{"STORE_LOG_LEVEL=Debug"}, other, hclog.Debug, "configuration reloaded"},
		{"EventStoreDB's environment over file", "--config c.yaml", []string{"EVENTSTORE_LOG_LEVEL=Default"}, other, before, "configuration reloaded"},
		{"unknown option", "--config c.yaml", nil, other + "\nLogLevle: Debug", before, "was not reloaded"},
		{"bad value", "--config c.yaml", nil, "LogLevel: Loud", before, "was not reloaded"},
		{"not YAML", "--config c.yaml", nil, "LogLevel: [", before, "was not reloaded"},
		{"what would not start", "--config c.yaml", nil, other + "\nClusterSize: 0", before, "was not reloaded"},
		{"a schedule that is none", "--config c.yaml", nil, other + "\nScavengeSchedule: sometime", before, "was not reloaded"},
		{"file gone", "--config c.yaml", nil, "", before, "was not reloaded"},
		{"no file at all", "", nil, "", before, "configuration reloaded"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(nil)
			w.environ = c.env
			if c.file != "" {
				w.files["c.yaml"] = c.file
			}
			logger := hclog.New(&hclog.LoggerOptions{Level: before, Output: w.err})
			sub := logger.Named("http")
			r := newReloader(config.Default(), func() (*config.Config, error) { return w.load(strings.Fields(c.args)) }, logger)
			r.run()
			if got := sub.GetLevel(); got != c.level || !strings.Contains(w.err.String(), c.log) {
				t.Errorf("level %s, want %s\n%s", got, c.level, w.err)
			}
			for _, v := range r.settings() {
				if v.Name == "LogLevel" && ((v.Value == "Default") != (c.level == before) || (v.Source == "<DEFAULT>") != (c.level == before)) {
					t.Errorf("shown as %s of %s", v.Value, v.Source)
				}
			}
		})
	}
}

// TestReloadPassesCertificatesOn: what is shown afterwards is what the node has taken
// over, and a reload asked for while it starts is made up for.
func TestReloadPassesCertificatesOn(t *testing.T) {
	cases := []struct {
		name          string
		args          string
		refuses, late bool
		shown         string
		source        string
	}{
		{name: "taken over", shown: "new.crt", source: "Yaml"},
		{name: "refused", refuses: true, shown: "old.crt", source: "Yaml"},
		{name: "asked for while the node starts", late: true, shown: "new.crt", source: "Yaml"},
		{name: "named by the command line", args: " --certificate-file cl.crt", shown: "cl.crt", source: "Command Line"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := newFakeNode()
			n.refuses = c.refuses
			w := newWorld(n)
			load := func() (*config.Config, error) { return w.load(strings.Fields("--config c.yaml" + c.args)) }
			w.files["c.yaml"] = "CertificateFile: old.crt"
			old := check.Value(load()).Must(t)
			r := newReloader(old, load, hclog.New(&hclog.LoggerOptions{Output: w.err}))
			if !c.late {
				r.attach(n)
			}
			w.files["c.yaml"] = "CertificateFile: new.crt"
			r.run()
			if c.late {
				r.attach(n)
			}
			all := strings.TrimSpace(w.err.String())
			if last := all[strings.LastIndex(all, "\n")+1:]; strings.Contains(last, "[INFO]") == c.refuses {
				t.Errorf("the last line is %s", last)
			}
			want := "new.crt"
			if c.args != "" {
				want = "cl.crt"
			}
			if len(n.reloaded) != 1 || n.reloaded[0] != want {
				t.Errorf("the node was told of %q", n.reloaded)
			}
			for _, v := range r.settings() {
				if v.Name == "CertificateFile" && (v.Value != c.shown || !strings.Contains(v.Source, c.source)) {
					t.Errorf("shown as %q of %s", v.Value, v.Source)
				}
			}
		})
	}
}

// TestReloadNeedsRestart: what a reload does not take over is said by name, and no value with it.
func TestReloadNeedsRestart(t *testing.T) {
	w := newWorld(newFakeNode())
	load := func() (*config.Config, error) { return w.load(strings.Fields("--config c.yaml --node-port 2200")) }
	w.files["c.yaml"] = "ClusterSize: 3\nNodePort: 2201\nGossipSeed: a:1,b:1\nDiscoverViaDns: false"
	old := check.Value(load()).Must(t)
	r := newReloader(old, load, hclog.New(&hclog.LoggerOptions{Output: w.err}))
	r.run()
	check.Fails(t, w.logged("needs a restart"), "nothing changed", w.err)
	w.files["c.yaml"] = "ClusterSize: 5\nNodePort: 2202\nGossipSeed: a:1,b:1\nDiscoverViaDns: false\nLogLevel: Debug\nStatsPeriodSec: 7"
	for range 2 { // It stays so.
		r.run()
	}
	if n := strings.Count(w.err.String(), "[WARN]  changed, but needs a restart: StatsPeriodSec, ClusterSize\n"); n != 2 {
		t.Errorf("said %d times\n%s", n, w.err)
	}
}

// TestHangupReloads goes the whole way, and holds the first reload up while the
// second is asked for: that one is ignored, and the node can still be stopped.
func TestHangupReloads(t *testing.T) {
	w := newWorld(newFakeNode())
	reading, goOn := make(chan struct{}), make(chan struct{})
	reads := 0
	w.readFile = func(string) ([]byte, error) {
		if reads++; reads > 1 {
			reading <- struct{}{}
			<-goOn
		}
		return []byte("LogLevel: Debug"), nil
	}
	result := w.start("--log-console-format=json")
	o := <-w.opened
	o.Logger.SetLevel(hclog.Info)
	w.signals <- syscall.SIGHUP
	<-reading
	w.signals <- syscall.SIGHUP
	testkit.Eventually(t, eventually, func() error { return w.logged("another request for it is ignored") })
	// As by a client: it returns at once, because it is ignored as well.
	o.Reload()
	testkit.Eventually(t, eventually, func() error { // Another goroutine writes the log.
		if got := strings.Count(w.err.String(), "another request for it is ignored"); got != 2 {
			return fmt.Errorf("%d requests were ignored, want 2", got)
		}
		return nil
	})
	w.signals <- syscall.SIGTERM
	testkit.Eventually(t, eventually, func() error { return w.logged(`"@message":"stopped"`) })
	close(goOn)
	check.NoError(t, <-result)
	if !o.Logger.IsDebug() || reads != 2 {
		t.Errorf("level %s after %d reads\n%s", o.Logger.GetLevel(), reads, w.err)
	}
}
