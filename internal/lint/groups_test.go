package lint

import (
	"go/ast"
	"strconv"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// TestImportGroups: the standard library, then what others wrote, then this module, with an empty
// line between.
func TestImportGroups(t *testing.T) {
	for _, f := range sources(t) {
		if ast.IsGenerated(f.file) {
			continue
		}
		last, end := 0, 0
		for _, i := range f.file.Imports {
			p := check.Value(strconv.Unquote(i.Path.Value)).Must(t)
			group, line := importGroup(p), f.set.Position(i.Pos()).Line
			if end > 0 && (group < last || (group > last) != (line > end+1)) {
				t.Errorf("%s: %s stands in the wrong group of imports", f.name, p)
				break
			}
			last, end = group, line
		}
	}
}

func importGroup(p string) int {
	first, _, _ := strings.Cut(p, "/")
	switch {
	case within(p, modulePath):
		return 2
	case strings.Contains(first, "."):
		return 1
	}
	return 0
}
