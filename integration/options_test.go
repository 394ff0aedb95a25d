package integration_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// option is one element of /info/options.
type option struct {
	Name                string   `json:"name"`
	Description         string   `json:"description"`
	Group               string   `json:"group"`
	Value               *string  `json:"value"`
	PossibleValues      []string `json:"possibleValues"`
	ConfigurationSource string   `json:"configurationSource"`
	DeprecationMessage  *string  `json:"deprecationMessage"`
}

// optionGroups are the groups as clients know them.
var optionGroups = []string{
	"ApplicationOptions", "DevModeOptions", "DefaultUserOptions", "LoggingOptions", "AuthOptions", "CertificateOptions", "CertificateFileOptions",
	"CertificateStoreOptions", "ClusterOptions", "DatabaseOptions", "GrpcOptions", "InterfaceOptions", "ProjectionOptions",
}

// readOptions reads /info/options of a node as the administrator.
func readOptions(t *testing.T, node *testkit.Client, password string) map[string]option {
	t.Helper()
	answer := must(t, node, testkit.Request{Path: "/info/options", User: "admin", Password: password}, http.StatusOK)
	var list []option
	check.Must(t, json.Unmarshal(answer.Body, &list))
	all := map[string]option{}
	for _, o := range list {
		if _, twice := all[o.Name]; twice || o.Name == "" || o.Description == "" || o.Value == nil || !slices.Contains(optionGroups, o.Group) {
			t.Errorf("an option of the list is %+v", o)
		}
		all[o.Name] = o
	}
	return all
}

// flagged is how an option is written on the command line.
func flagged(name string) string {
	return strings.ToLower(regexp.MustCompile(`([a-z0-9])([A-Z])`).ReplaceAllString(name, "$1-$2"))
}

// TestOptionsEverywhere: the help text, the page of the documentation and a running node know the
// same options.
func TestOptionsEverywhere(t *testing.T) {
	t.Parallel()
	node := testkit.StartNode(t, t.TempDir())
	running := map[string]bool{}
	for name := range readOptions(t, node.Client, "changeit") {
		running[flagged(name)] = true
	}
	help, code := testkit.Run(t, testkit.Command{Args: []string{"node", "--help"}})
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, help.Output())
	}
	helped := map[string]bool{}
	_, without, found := strings.Cut(help.Stdout(), "without effect\n")
	if !found {
		t.Fatal("the help text has no part about options without effect")
	}
	for _, m := range regexp.MustCompile(`(?m)^  --(\S+)`).FindAllStringSubmatch(help.Stdout(), -1) {
		helped[m[1]] = true
	}
	for name := range strings.FieldsSeq(without) {
		helped[strings.TrimPrefix(name, "--")] = true
	}
	root := check.Value(testkit.Root()).Must(t)
	page := check.Value(os.ReadFile(filepath.Join(root, "docs", "options.md"))).Must(t)
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| (\\w+) \\| (`--[^`]+`|refused) \\|").FindAllStringSubmatch(string(page), -1) {
		documented[flagged(m[1])] = true
		if m[2] != "refused" && m[2] != "`--"+flagged(m[1])+"`" {
			t.Errorf("the page writes %s as %s", m[1], m[2])
		}
	}
	for what, names := range map[string]map[string]bool{"help": helped, "documentation": documented} {
		if !maps.Equal(names, running) {
			t.Errorf("only in the %s: %q, only in the running node: %q", what, lacking(names, running), lacking(running, names))
		}
	}
	node.Stop()
}

// lacking are the names that a set has and another lacks.
func lacking(of, in map[string]bool) (names []string) {
	for name := range of {
		if !in[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestOptionSources: a running node tells who set each option, and no password.
func TestOptionSources(t *testing.T) {
	t.Parallel()
	const ours, theirs, file, line, standard = "Environment Variables", "Environment Variables", "Yaml", "Command Line", "<DEFAULT>"
	const secret = "a-very-secret-password"
	folder := t.TempDir()
	db := filepath.Join(folder, "db")
	conf := writeText(t, folder, "annals.conf", "---\nStatsPeriodSec: 41\nNodePriority: 5\nMaxMemTableSize: 1111\nPrepareTimeoutMs: 1500\nIndexCacheDepth: 9\nCertificatePassword: "+secret+"\nDisableHttpCaching: true\n")
	node := testkit.Launch(t, testkit.Command{
		Args: []string{"node", "--db", db, "--node-port=0", "--config", conf, "--NodePriority", "7", "-commit-timeout-ms=2500", "--log-failed-authentication-attempts", "--ext-ip", "127.0.0.1"},
		Env: []string{
			"STORE_MAX_MEM_TABLE_SIZE=2222", "EVENTSTORE_WRITE_TIMEOUT_MS=1600", "STORE_STREAM_INFO_CACHE_CAPACITY=1000", "EVENTSTORE_STREAM_INFO_CACHE_CAPACITY=2000",
			"STORE_DEFAULT_ADMIN_PASSWORD=" + secret, "EVENTSTORE_DEFAULT_OPS_PASSWORD=" + secret, "STORE_NODE_PRIORITY=6", "STORE_CERTIFICATE_PRIVATE_KEY_PASSWORD=" + secret,
		},
	})
	node.AwaitServing()
	all := readOptions(t, node.Client, secret)
	for name, want := range map[string]struct{ value, source string }{
		"Db":                              {db, line},
		"NodePort":                        {"0", line},
		"Config":                          {conf, line},
		"NodePriority":                    {"7", line},
		"CommitTimeoutMs":                 {"2500", line},
		"NodeIp":                          {"127.0.0.1", line},
		"MaxMemTableSize":                 {"2222", ours},
		"WriteTimeoutMs":                  {"1600", theirs},
		"StreamInfoCacheCapacity":         {"1000", ours},
		"StatsPeriodSec":                  {"41", file},
		"PrepareTimeoutMs":                {"1500", file},
		"IndexCacheDepth":                 {"9", file},
		"DefaultAdminPassword":            {"********", ours},
		"DefaultOpsPassword":              {"********", theirs},
		"CertificatePassword":             {"********", file},
		"CertificatePrivateKeyPassword":   {"********", ours},
		"ClusterSize":                     {"1", standard},
		"MemDb":                           {"False", standard},
		"Insecure":                        {"False", standard},
		"CertificateFile":                 {"", standard},
		"LogLevel":                        {"Default", standard},
		"EnableAtomPubOverHttp":           {"True", standard},
		"LogFailedAuthenticationAttempts": {"true", line},
		"DisableHttpCaching":              {"true", file},
	} {
		o := all[name]
		if o.Value == nil || !strings.EqualFold(*o.Value, want.value) || o.ConfigurationSource != want.source {
			t.Errorf("%s is %+v, want %q by %s", name, o, want.value, want.source)
		}
	}
	set := 0
	for _, o := range all {
		if o.ConfigurationSource != standard {
			set++
		}
	}
	check.Equal(t, set, 18, "options are said to be set")
	if o := all["NodeIp"]; o.DeprecationMessage == nil || !strings.Contains(strings.ToLower(*o.DeprecationMessage), "ext-ip") {
		t.Errorf("the former name of NodeIp is not told: %+v", o)
	}
	if o := all["LogLevel"]; !slices.Contains(o.PossibleValues, "Verbose") || all["Db"].PossibleValues != nil {
		t.Errorf("the values of LogLevel are %q, those of Db %q", o.PossibleValues, all["Db"].PossibleValues)
	}
	for _, r := range []testkit.Request{{}, {User: "ops", Password: "changeit"}, {User: "admin", Password: "changeit"}} {
		r.Path = "/info/options"
		must(t, node, r, http.StatusUnauthorized)
	}
	whatIf, code := testkit.Run(t, testkit.Command{
		Args: []string{"node", "--what-if", "--config", conf, "--node-priority", "7"}, Env: []string{"STORE_DEFAULT_ADMIN_PASSWORD=" + secret},
	})
	check.Equal(t, code, 0, "what-if: exit code")
	node.Stop()
	for what, text := range map[string]string{"node": node.Output(), "what-if": whatIf.Output()} {
		if strings.Contains(text, secret) {
			t.Errorf("%s tells a password:\n%s", what, text)
		}
	}
}
