package config_test

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		check.Must(t, os.WriteFile(path, got, 0o644))
	}
	want := check.Value(os.ReadFile(path)).Must(t)
	check.Slice(t, got, want, path, "differs (rewrite it with -update and review the diff)")
}

func TestHelp(t *testing.T) {
	var b bytes.Buffer
	check.Must(t, config.WriteHelp(&b, nil))
	golden(t, "testdata/help.golden", b.Bytes())
}

// TestDocumentation keeps the page of the documentation equal to the table.
func TestDocumentation(t *testing.T) {
	var b bytes.Buffer
	check.Must(t, config.WriteMarkdown(&b))
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
	check.Must(t, c.WriteWhatIf(&b))
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
	check.NoError(t, c.Validate(), "the defaults are refused")
	check.Equal(t, c.ListenAddr(), "127.0.0.1:2113", "address")
	c.NodePort = 0
	check.Equal(t, value(t, c, "NodePort").Value, "0", "a field set by hand shows as")
}
