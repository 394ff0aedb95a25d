package media

import (
	"slices"
	"strings"
	"testing"
)

// TestETagsTellTypesApart guards the constants: two types must not share one.
func TestETagsTellTypesApart(t *testing.T) {
	var seen []string
	for _, m := range allTypes {
		if m.kurrent {
			continue
		}
		if slices.Contains(seen, m.ETag) {
			t.Errorf("%s/%s shares its tag", m.Typ, m.Sub)
		}
		seen = append(seen, m.ETag)
	}
}

// TestKurrentNames: every JSON type has the name that later clients use for it.
func TestKurrentNames(t *testing.T) {
	for _, m := range allTypes {
		later, ours := strings.CutPrefix(m.Sub, "vnd.eventstore.")
		if !ours || !m.Form.IsJSON() {
			continue
		}
		alias := typeNamed("application", "vnd.kurrent."+later)
		if alias == nil || !alias.kurrent || alias.Form != m.Form || alias.ETag != m.ETag {
			t.Errorf("%s is not known by its later name", m.Sub)
		}
	}
}
