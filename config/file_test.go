package config

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// packaged are the values that the file of the packages sets. All others are the defaults.
var packaged = []struct{ name, value string }{{"Db", "/var/lib/annals"}}

const fileIntroduction = `# The configuration of a node. It has every option with its default. Remove the # in front of an
# option to set it. Run "annals config check" after a change, then "systemctl restart annals";
# "systemctl reload annals" is enough for LogLevel and for certificates.
#
# The passwords that users admin and ops of a new database get, and the keys of an object store,
# do not belong into this file: set them in /etc/annals/environment.
`

// configurationFile is the file that packages install. It has every option that may stand there.
func configurationFile() []byte {
	var b bytes.Buffer
	b.WriteString(fileIntroduction)
	table := Default().table()
	group := ""
	for i := range table {
		o := &table[i]
		if !o.hasEffect() || o.notInFile || o.environmentOnly {
			continue
		}
		if o.group != group {
			group = o.group
			fmt.Fprintf(&b, "\n## %s\n", groupTitles[group])
		}
		doc := o.description()
		if len(o.target.possible) > 0 {
			doc += " One of " + strings.Join(o.target.possible, ", ") + "."
		}
		b.WriteByte('\n')
		line := "#"
		for word := range strings.FieldsSeq(doc) {
			if len(line)+1+len(word) > helpWidth {
				b.WriteString(line + "\n")
				line = "#"
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
		if at := slices.IndexFunc(packaged, func(p struct{ name, value string }) bool { return p.name == o.name }); at >= 0 {
			fmt.Fprintf(&b, "%s: %s\n", o.name, packaged[at].value)
		} else {
			fmt.Fprintf(&b, "#%s\n", strings.TrimRight(o.name+": "+o.defaultText(), " "))
		}
	}
	return b.Bytes()
}

// ConfigurationFile is for the tests outside of the package.
var ConfigurationFile = configurationFile

// TestConfigurationFileIsLoaded: a node starts by the file, and so it does with every default set.
func TestConfigurationFileIsLoaded(t *testing.T) {
	text := string(configurationFile())
	var all strings.Builder
	for line := range strings.Lines(text) {
		// An option follows the # at once. One without a default cannot be set to it.
		if name, value, ok := strings.Cut(strings.TrimPrefix(line, "#"), ": "); ok && !strings.ContainsAny(name, " #") {
			fmt.Fprintf(&all, "%s: %s", name, value)
		}
	}
	for _, file := range []string{text, all.String()} {
		c, err := Load([]string{"--config", "/x.conf"}, nil, func(string) ([]byte, error) { return []byte(file), nil })
		check.Must(t, err, file)
		check.MustEqual(t, c.Db, "/var/lib/annals", c)
		check.Equal(t, c.NodePort, Default().NodePort, c)
	}
}
