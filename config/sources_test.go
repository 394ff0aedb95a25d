package config

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// sample is a value that every source may give to an option, and that keeps no
// node from starting.
func sample(o *option) string {
	switch {
	case o.environmentOnly:
		return "secret"
	case o.name == "Index" || o.name == "Config":
		return "x"
	case o.def != "":
		return o.def
	case o.name == "GossipSeed":
		return "a:1"
	case o.name == "BackupS3Endpoint":
		return "https://x"
	}
	return "x"
}

// given loads a configuration in which one source says what another may say too.
type given struct {
	args, env []string
	yaml      string
}

func (g given) load() (*Config, error) {
	return Load(g.args, g.env, func(name string) ([]byte, error) {
		if name == defaultConfigFile && g.yaml != "" || name == "x" {
			return []byte(g.yaml), nil
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	})
}

// way is one way to set an option.
type way struct {
	name   string
	source string
	set    func(g *given, name, value string)
}

// ways from the weakest to the strongest.
var ways = []way{
	{"file", "Yaml", func(g *given, name, value string) { g.yaml += fmt.Sprintf("%s: %q\n", name, value) }},
	{"environment of KurrentDB", "Environment Variables", func(g *given, name, value string) { g.env = append(g.env, "KURRENTDB_"+name+"="+value) }},
	{"environment of EventStoreDB", "Environment Variables", func(g *given, name, value string) { g.env = append(g.env, "EVENTSTORE_"+name+"="+value) }},
	{"environment", "Environment Variables", func(g *given, name, value string) { g.env = append(g.env, EnvPrefix+name+"="+value) }},
	{"command line", "Command Line", func(g *given, name, value string) { g.args = append(g.args, "--"+name+"="+value) }},
}

// spellingsOf returns a name as it may be written.
func spellingsOf(name string) []string {
	return []string{name, strings.ToLower(name), flagName(name), strings.ToUpper(separate(name, '_'))}
}

// TestEverySourceOfEveryOption sets every option in every way, by every name and
// spelling, and looks for it in what /info/options shows.
func TestEverySourceOfEveryOption(t *testing.T) {
	table := Default().table()
	for i := range table {
		o := &table[i]
		t.Run(o.name, func(t *testing.T) {
			for _, w := range ways {
				fromFile, fromArgs := w.source == "Yaml", w.source == "Command Line"
				for _, name := range append([]string{o.name}, o.synonyms...) {
					for _, spelling := range spellingsOf(name) {
						var g given
						if o.group == groupCertificateStore {
							g.args = []string{"--insecure"}
						}
						if o.name == "BackupS3Endpoint" || o.name == "BackupSchedule" {
							g.args = []string{"--backup-to=s3://x/y"}
						}
						w.set(&g, spelling, sample(o))
						c, err := g.load()
						if o.environmentOnly && (fromFile || fromArgs) || o.notInFile && fromFile {
							check.Fails(t, err, w.name, spelling, "was accepted")
							continue
						}
						check.Must(t, err, w.name)
						got := valueOf(c, o.name)
						want := Value{
							Name: o.name, Description: o.description(), Group: o.group, Kind: o.target.kind, Possible: o.target.possible,
							Value: sample(o), Source: w.source, Deprecation: got.Deprecation,
						}
						if o.sensitive {
							want.Value = "********"
						}
						if fmt.Sprint(got) != fmt.Sprint(want) {
							t.Errorf("%s: %s\ngot  %+v\nwant %+v", w.name, spelling, got, want)
						}
						if deprecated := name != o.name || o.deprecated != ""; deprecated != (got.Deprecation != "") {
							t.Errorf("%s: %s: deprecation %q", w.name, spelling, got.Deprecation)
						}
					}
				}
			}
			byDefault := valueOf(Default(), o.name)
			if byDefault.Source != "<DEFAULT>" || o.sensitive && byDefault.Value != mask {
				t.Errorf("by default %+v", byDefault)
			}
			if !o.sensitive && o.name != "Index" && byDefault.Value != o.def {
				t.Errorf("by default %q, want %q", byDefault.Value, o.def)
			}
		})
	}
}

func valueOf(c *Config, name string) Value {
	values := c.Values()
	return values[slices.IndexFunc(values, func(v Value) bool { return v.Name == name })]
}

// TestPrecedence: of any two ways the stronger one wins, whichever comes first.
func TestPrecedence(t *testing.T) {
	for weak := range ways {
		for strong := weak + 1; strong < len(ways); strong++ {
			for _, names := range [][2]string{{"NodePort", "NodePort"}, {"NodePort", "HttpPort"}, {"HttpPort", "NodePort"}} {
				t.Run(fmt.Sprintf("%s %s over %s %s", ways[strong].name, names[1], ways[weak].name, names[0]), func(t *testing.T) {
					for _, weakFirst := range []bool{true, false} {
						var g given
						if weakFirst {
							ways[weak].set(&g, names[0], "1")
						}
						ways[strong].set(&g, names[1], "2")
						if !weakFirst {
							ways[weak].set(&g, names[0], "1")
						}
						c := check.Value(g.load()).Must(t)
						if got := valueOf(c, "NodePort"); got.Value != "2" || got.Source != ways[strong].source || c.NodePort != 2 {
							t.Errorf("%s from %s, and the node takes %d", got.Value, got.Source, c.NodePort)
						}
					}
				})
			}
		}
	}
	// Both prefixes give the passwords, and nothing else does.
	c, err := given{env: []string{"EVENTSTORE_DEFAULT_ADMIN_PASSWORD=theirs", "STORE_DEFAULT_ADMIN_PASSWORD=ours", "eventstore_default_ops_password=ops"}}.load()
	if err != nil || c.DefaultAdminPassword != "ours" || c.DefaultOpsPassword != "ops" {
		t.Errorf("passwords: %+v, %v", c, err)
	}
}

// TestEverywhereTheSameOptions: the help text, what /info/options shows and the
// documentation know the same options.
func TestEverywhereTheSameOptions(t *testing.T) {
	var values, inHelp, inDocs []string
	for _, v := range Default().Values() {
		values = append(values, flagName(v.Name))
	}
	var help, docs bytes.Buffer
	check.Must(t, WriteHelp(&help, nil))
	text, without, _ := strings.Cut(help.String(), "without effect\n")
	for line := range strings.SplitSeq(text, "\n") {
		if rest, ok := strings.CutPrefix(line, "  --"); ok {
			name, _, _ := strings.Cut(rest, " ")
			inHelp = append(inHelp, name)
		}
	}
	for word := range strings.FieldsSeq(without) {
		inHelp = append(inHelp, strings.TrimPrefix(word, "--"))
	}
	check.Must(t, WriteMarkdown(&docs))
	all, _, _ := strings.Cut(docs.String(), "\n## Defaults that are not")
	for line := range strings.SplitSeq(all, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) >= 5 && strings.Contains(cells[2], EnvPrefix) {
			inDocs = append(inDocs, flagName(strings.TrimSpace(cells[0])))
		}
	}
	for _, names := range [][]string{values, inHelp, inDocs} {
		slices.Sort(names)
	}
	check.Slice(t, values, inHelp, "help text and values differ")
	check.Slice(t, values, inDocs, "documentation and values differ")
	for _, r := range referenceDefaults {
		if !slices.Contains(values, flagName(r.name)) {
			t.Errorf("%s is no option", r.name)
		}
	}
}
