package config

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

const markdownIntroduction = `# Options

This page is written from the table of options in the package config; ` + "`make golden`" + ` rewrites it.

Options may stand on the command line, in the environment and in a YAML file:

| where | example | strength |
| --- | --- | --- |
| command line | ` + "`--cluster-size 3`, `--cluster-size=3`" + ` | strongest |
| environment | ` + "`STORE_CLUSTER_SIZE=3`" + ` | |
| environment, the prefix of EventStoreDB | ` + "`EVENTSTORE_CLUSTER_SIZE=3`" + ` | |
| environment, the prefix of KurrentDB | ` + "`KURRENTDB_CLUSTER_SIZE=3`" + ` | |
| YAML file | ` + "`ClusterSize: 3`" + ` | weakest |

- Case and the separators ` + "`-` and `_`" + ` do not matter, and one dash does where two stand here: ` + "`-ClusterSize=3`" + `.
- Flags: ` + "`--mem-db`, `--mem-db+` and `--mem-db=true`" + ` mean true, ` + "`--mem-db-` and `--mem-db=false`" + ` mean false.
- Lists are separated by commas; in the YAML file they may be sequences. A key that is null there counts as not set, one that occurs twice
  is an error. A variable without text counts as not set.
- Variables with the prefix of another product are named once at the start. So are those that Kubernetes makes for a service called store,
  eventstore or kurrentdb (` + "`STORE_SERVICE_HOST`, `STORE_PORT=tcp://…`" + `): they are no options, and passed over.
- An unknown option stops the start, with the nearest known name; with ` + "`AllowUnknownOptions`" + ` it is warned about.
- ` + "`annals node --what-if`" + ` prints the effective options with their sources, and so does GET /info/options of a running node.
- SIGHUP and POST /admin/reloadconfig read the YAML file anew. ` + "`LogLevel`" + ` is taken over, unless it says Default, and so are the six
  options of certificates (` + "`CertificateFile`, `CertificatePrivateKeyFile`, their passwords, `TrustedRootCertificatesPath`" + ` and
  ` + "`CertificateReservedNodeCommonName`" + `), whose files are read anew even where nothing else changed. What the environment or command line
  say stays. A YAML file that is missing or wrong changes nothing, and certificates that are refused leave the old ones in force: see
  [operations](operations.md).
`

const markdownLogging = `
Log lines go to standard error, which systemd and container runtimes collect. With ` + "`Log`" + ` set they also go to the file annals.log in that
folder, in the same form. It is finished and a new one begun at ` + "`LogFileSize`" + ` and with every ` + "`LogFileInterval`" + ` (UTC); the newest
` + "`LogFileRetentionCount`" + ` finished ones, annals-<time>.log, are kept. Every event is one line, whatever its values hold; times are UTC, and
durations are nanoseconds in JSON. When a file cannot be written, as on a full disk, that is said once on standard error, and the node goes on.
`

const markdownWithout = `
## Without effect

These options of EventStoreDB have no meaning here. They are known, so that existing configurations start, shown by /info/options, and warned
about when they are set. Their values are checked all the same.
`

// referenceDefaults are the defaults of EventStoreDB that differ from ours.
var referenceDefaults = []struct{ name, def, why string }{
	{"Config", referenceConfigFile, "Its file is read too, when ours is missing."},
	{"Log", "/var/log/eventstore", "Standard error is enough where something collects it."},
	{"AllowAnonymousStreamAccess", "false", "Access lists decide; by default they let everybody read and write what is no system stream."},
	{"Db", "/var/lib/eventstore", "A first node needs no folder prepared, and no rights."},
	{"EnableAtomPubOverHttp", "false", "Atom over HTTP is what clients come for."},
}

// WriteMarkdown writes the page of the documentation that lists every option.
func WriteMarkdown(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString(markdownIntroduction)
	table := Default().table()
	group := ""
	for i := range table {
		o := &table[i]
		if !o.hasEffect() {
			continue
		}
		if o.group != group {
			group = o.group
			fmt.Fprintf(&b, "\n## %s\n", groupTitles[group])
			if group == groupLogging {
				b.WriteString(markdownLogging)
			}
			fmt.Fprintf(&b, "\nGroup `%s`.\n\n", group)
			b.WriteString("| option | command line | environment | default | what | deprecated names |\n| --- | --- | --- | --- | --- | --- |\n")
		}
		doc := o.description()
		if len(o.target.possible) > 0 {
			doc += " One of " + strings.Join(o.target.possible, ", ") + "."
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", o.spellings(), code(o.defaultText()), cell(doc), strings.Join(o.synonyms, ", "))
	}

	b.WriteString(markdownWithout)
	b.WriteString("\n| option | command line | environment | default | group | what | deprecated names |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for i := range table {
		o := &table[i]
		if o.hasEffect() {
			continue
		}
		doc := strings.TrimSuffix(o.description(), " No effect.")
		if o.deprecated != "" {
			doc += " Deprecated."
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", o.spellings(), code(o.defaultText()), o.group, cell(doc), strings.Join(o.synonyms, ", "))
	}

	b.WriteString("\n## Defaults that are not those of EventStoreDB\n\n| option | default here | of EventStoreDB | why |\n| --- | --- | --- | --- |\n")
	for _, r := range referenceDefaults {
		for i := range table {
			if o := &table[i]; o.name == r.name {
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.name, code(o.defaultText()), code(r.def), r.why)
			}
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// spellings are the cells that name an option.
func (o *option) spellings() string {
	flag := code("--" + flagName(o.name))
	if o.environmentOnly {
		flag = "refused"
	}
	return o.name + " | " + flag + " | " + code(envName(o.name))
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
