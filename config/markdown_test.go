package config

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
)

const markdownIntroduction = `# Options

This page is written from the table of options in the package config; ` + "`make golden`" + ` rewrites it.

Set options on the command line, in the environment or in a YAML file:

| where | example | strength |
| --- | --- | --- |
| command line | ` + "`--cluster-size 3`, `--cluster-size=3`" + ` | strongest |
| environment | ` + "`STORE_CLUSTER_SIZE=3`" + ` | |
| environment, the prefix of EventStoreDB | ` + "`EVENTSTORE_CLUSTER_SIZE=3`" + ` | |
| environment, the prefix of KurrentDB | ` + "`KURRENTDB_CLUSTER_SIZE=3`" + ` | |
| YAML file | ` + "`ClusterSize: 3`" + ` | weakest |

- Case and the separators ` + "`-` and `_`" + ` do not matter. One dash is enough:
  ` + "`-ClusterSize=3`" + `.
- Flags: ` + "`--mem-db`, `--mem-db+` and `--mem-db=true`" + ` mean true. ` + "`--mem-db-`" + ` and
  ` + "`--mem-db=false`" + ` mean false.
- Separate the items of lists by commas. In the YAML file a list may be a sequence. A key that is
  null there counts as not set, and a key that occurs twice is an error. A variable without text
  counts as not set.
- At the start the log names the variables with the prefix of another product. It also names those
  that Kubernetes makes for a service called store, eventstore or kurrentdb
  (` + "`STORE_SERVICE_HOST`, `STORE_PORT=tcp://…`" + `). They are not options, and the node ignores them.
- Files and variables of EventStoreDB 5 to 23 and KurrentDB 25 work unchanged. One line of the log
  names the options and sections that have no effect here, such as ` + "`Licensing`" + `. The members of a
  section ` + "`KurrentDB` or `EventStore`" + ` count as if they stood at the top of the file.
- An unknown option stops the start. The error names the file and line, or the variable, and the
  nearest known name. With ` + "`AllowUnknownOptions`" + ` it is a warning.
- ` + "`annals config check`" + ` finds all mistakes that would stop a start: run it before a restart.
- ` + "`annals node --what-if`" + ` prints the effective options with their sources. So does
  ` + "`GET /info/options`" + ` of a running node.
- SIGHUP and ` + "`POST /admin/reloadconfig`" + ` read the YAML file again. The node takes over ` + "`LogLevel`" + `,
  unless it is Default, and the six options of certificates (` + "`CertificateFile`" + `,
  ` + "`CertificatePrivateKeyFile`" + `, their passwords, ` + "`TrustedRootCertificatesPath`" + ` and
  ` + "`CertificateReservedNodeCommonName`" + `). It reads the certificate files again even if no option
  changed. The environment and the command line keep their values. A YAML file that is missing or
  wrong changes nothing. Certificates that the node refuses leave the old ones in force: see
  [operations](operations.md).
`

const markdownLogging = `
Log lines go to standard error, which systemd and container runtimes collect. With ` + "`Log`" + ` set they
also go to the file annals.log in that folder, in the same form. A new file begins at ` + "`LogFileSize`" + `
and with every ` + "`LogFileInterval`" + ` (UTC). The newest ` + "`LogFileRetentionCount`" + ` finished files,
annals-<time>.log, stay. Every entry is one line, whatever its values contain. Times are UTC, and
durations are nanoseconds in JSON. When the node cannot write a file, as on a full disk, it says so
once on standard error and keeps serving.
`

const markdownWithout = `
## Without effect

These options of EventStoreDB have no meaning here. The node accepts them, so that existing
configurations start, and one line of the log names those that are set. /info/options shows them.
Their values must still be valid.
`

// referenceDefaults are the defaults of EventStoreDB that differ from ours.
var referenceDefaults = []struct{ name, def, why string }{
	{"Config", referenceConfigFile, "Its file is read too, when ours is missing."},
	{"Log", "/var/log/eventstore", "Standard error is enough where a service manager collects it."},
	{"AllowAnonymousStreamAccess", "false", "Access lists decide. By default they let everyone read and write streams that are not system streams."},
	{"Db", "/var/lib/eventstore", "A first node needs no prepared folder and no rights."},
	{"EnableAtomPubOverHttp", "false", "Clients use Atom over HTTP."},
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
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", o.spellings(), cmp.Or(o.unset, code(o.defaultText())), cell(doc), strings.Join(o.synonyms, ", "))
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
