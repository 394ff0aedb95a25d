package config

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
)

// helpWidth is where the lines of the help text are broken.
const helpWidth = 100

var groupTitles = map[string]string{
	groupApplication:      "Application",
	groupDevMode:          "Development",
	groupDefaultUser:      "Default users",
	groupLogging:          "Logging",
	groupAuth:             "Authentication and authorisation",
	groupCertificate:      "Certificates",
	groupCertificateFile:  "Certificates from files",
	groupCertificateStore: "Certificates from the store of the operating system",
	groupCluster:          "Cluster",
	groupDatabase:         "Database",
	groupGrpc:             "gRPC",
	groupInterface:        "Interfaces",
	groupProjection:       "Projections",
}

// WriteHelp writes the description of every option, less those that a command refuses.
func WriteHelp(w io.Writer, refused map[string]string) error {
	var b bytes.Buffer
	b.WriteString(`Set options on the command line (--log-level debug), in the environment (STORE_LOG_LEVEL=debug,
else EVENTSTORE_LOG_LEVEL=debug, else KURRENTDB_LOG_LEVEL=debug) or in a YAML file (LogLevel:
debug). The command line overrides the environment, and the environment overrides the file. Case
and the separators - and _ do not matter. --flag and --flag+ mean true, --flag- means false.
`)
	table := Default().table()
	group := ""
	var without []string
	for i := range table {
		o := &table[i]
		if _, out := refused[o.name]; out {
			continue
		}
		if !o.hasEffect() {
			without = append(without, "--"+flagName(o.name))
			continue
		}
		if o.group != group {
			group = o.group
			fmt.Fprintf(&b, "\n%s\n", groupTitles[group])
		}
		fmt.Fprintf(&b, "  --%s", flagName(o.name))
		switch {
		case o.target.kind == KindEnum:
			fmt.Fprintf(&b, " <%s>", strings.Join(o.target.possible, "|"))
		case o.target.kind != KindBool:
			fmt.Fprintf(&b, " <%s>", o.target.kind)
		}
		b.WriteString("\n")
		doc := o.description()
		if def := cmp.Or(o.unset, o.def); def != "" {
			doc += " Default: " + def + "."
		}
		if o.environmentOnly {
			doc += " Only in the environment: " + envName(o.name) + "."
		}
		for _, s := range o.synonyms {
			doc += " Deprecated name: --" + flagName(s) + "."
		}
		writeWrapped(&b, "      ", doc)
	}
	b.WriteString("\nAccepted for existing configurations, without effect\n")
	writeWrapped(&b, "  ", strings.Join(without, " "))
	_, err := w.Write(b.Bytes())
	return err
}

// WriteWhatIf writes the effective options. Those that were set come first.
func (c *Config) WriteWhatIf(w io.Writer) error {
	var modified, byDefault []Value
	idle := map[string]bool{}
	for _, o := range c.table() {
		idle[o.name] = !o.hasEffect()
	}
	if c.ClusterSize == 1 || !c.ViaDNS() { // The seeds are used, not the name.
		idle["DiscoverViaDns"], idle["ClusterDns"], idle["ClusterGossipPort"] = true, true, true
	}
	left := 0
	for _, v := range c.Values() {
		switch {
		case v.Source != sourceDefault.String():
			if idle[v.Name] {
				v.Source += ", without effect"
			}
			modified = append(modified, v)
		case idle[v.Name]:
			left++
		default:
			byDefault = append(byDefault, v)
		}
	}
	var b bytes.Buffer
	writeValues(&b, "Modified options", modified)
	b.WriteString("\n")
	writeValues(&b, "Default options", byDefault)
	fmt.Fprintf(&b, "\n%d more options have no effect here and are not set: see docs/options.md\n", left)
	_, err := w.Write(b.Bytes())
	return err
}

func writeValues(b *bytes.Buffer, title string, values []Value) {
	b.WriteString(title + "\n")
	for _, v := range values {
		fmt.Fprintf(b, "  %-42s %s (%s)\n", v.Name, cmp.Or(v.Value, "<empty>"), v.Source)
	}
	if len(values) == 0 {
		b.WriteString("  none\n")
	}
}

func writeWrapped(b *bytes.Buffer, indent, text string) {
	length := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case length == 0:
			b.WriteString(indent)
			length = len(indent)
		case length+1+len(word) > helpWidth:
			b.WriteString("\n" + indent)
			length = len(indent)
		default:
			b.WriteString(" ")
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	b.WriteString("\n")
}

// mask stands for the value of a sensitive option.
const mask = "********"

// Value is one option as an operator sees it.
type Value struct {
	Name        string
	Description string
	Group       string
	Kind        Kind
	// Value is what the strongest source said, as it said it, or the default.
	// Booleans are True and False by default. Sensitive values are masked.
	Value string
	// Possible lists the values of an enumeration; it is nil for other kinds.
	Possible []string
	// Source is one of <DEFAULT>, Yaml, Environment Variables and Command Line.
	Source string
	// Deprecation says what to do instead of setting the option. Mostly it is empty.
	Deprecation string
}

// Values returns every known option, those without effect included, in the order of the table.
func (c *Config) Values() []Value {
	table := c.table()
	values := make([]Value, len(table))
	for i := range table {
		o := &table[i]
		v := Value{
			Name:        o.name,
			Description: o.description(),
			Group:       o.group,
			Kind:        o.target.kind,
			Possible:    o.target.possible,
			Source:      sourceDefault.String(),
			Deprecation: o.deprecated,
		}
		s, given := c.given[o.name]
		if given {
			v.Value, v.Source = s.value, s.source.String()
			if fold(s.name) != fold(o.name) {
				v.Deprecation = s.name + " is deprecated, use " + o.name + "."
			}
		} else {
			v.Value = c.current(o)
		}
		if o.sensitive { // Also when empty: that none is set is what the source says.
			v.Value = mask
		}
		values[i] = v
	}
	return values
}

// current returns the text of an option's value. A field that was set after
// loading, as tests do, shows what it holds now.
func (c *Config) current(o *option) string {
	if o.hasEffect() {
		return o.target.get()
	}
	if s, ok := c.given[o.name]; ok {
		return s.value
	}
	return o.def
}
