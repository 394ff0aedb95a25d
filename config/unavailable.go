package config

import (
	"fmt"
	"strings"
)

// unavailable tells of every option that asks for something that is not there, a
// line each. It must not be passed over in silence.
func (c *Config) unavailable() []string {
	var lines []string
	table := c.table()
	for i := range table {
		o := &table[i]
		// Without TLS nobody misses a certificate.
		needless := c.Insecure && o.group == groupCertificateStore
		if !o.refused || needless || strings.EqualFold(c.current(o), o.def) {
			continue
		}
		must := "not be set"
		if o.def != "" {
			must = "be " + o.defaultText()
		}
		lines = append(lines, fmt.Sprintf("%s: %s must %s", o.lacks, o.name, must))
	}
	return lines
}
