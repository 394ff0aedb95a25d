package config_test

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/annalsdb/annals/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (rewrite it with -update and review the diff):\n%s", path, got)
	}
}

func TestHelp(t *testing.T) {
	var b bytes.Buffer
	if err := config.WriteHelp(&b, nil); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/help.golden", b.Bytes())
}

// TestDocumentation keeps the page of the documentation equal to the table.
func TestDocumentation(t *testing.T) {
	var b bytes.Buffer
	if err := config.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "../docs/options.md", b.Bytes())
}

// TestPackagedFile keeps the file that packages install equal to the table.
func TestPackagedFile(t *testing.T) {
	golden(t, "../deploy/packages/annals.conf", config.ConfigurationFile())
}

func TestWhatIf(t *testing.T) {
	c := mustLoad(t, input{
		args:  []string{"--what-if", "--node-port", "0"},
		env:   []string{"STORE_DEFAULT_ADMIN_PASSWORD=secret"},
		files: yamlFile("Db: /srv/db", "GossipSeed: [a:1]"),
	})
	var b bytes.Buffer
	if err := c.WriteWhatIf(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "secret") {
		t.Error("the password is shown")
	}
	golden(t, "testdata/what_if.golden", b.Bytes())
}

func TestValuesHoldEverythingAboutAnOption(t *testing.T) {
	c := mustLoad(t, input{args: []string{"--log-console-format=json", "--ext-ip=127.0.0.2"}})
	if got, want := value(t, c, "LogConsoleFormat"), (config.Value{
		Name: "LogConsoleFormat", Description: "The form of log lines, on standard error and in files alike.", Group: "LoggingOptions", Kind: config.KindEnum,
		Value: "json", Possible: []string{"Plain", "Json"}, Source: "Command Line",
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := value(t, c, "NodeIp"); got.Deprecation != "ext-ip is deprecated, use NodeIp." {
		t.Errorf("deprecation: %q", got.Deprecation)
	}
	if got := value(t, c, "ClusterSize"); got.Possible != nil || got.Value != "1" || got.Group != "ClusterOptions" {
		t.Errorf("ClusterSize: %+v", got)
	}
}

func TestDefault(t *testing.T) {
	c := config.Default()
	if err := c.Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	if got := c.ListenAddr(); got != "127.0.0.1:2113" {
		t.Errorf("address %s", got)
	}
	c.NodePort = 0
	if got := value(t, c, "NodePort"); got.Value != "0" {
		t.Errorf("a field set by hand shows as %q", got.Value)
	}
}
