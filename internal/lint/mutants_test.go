package lint

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMutantsApply: the changes that scripts/mutants.sh builds in still fit the source.
func TestMutantsApply(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	top := root(t)
	patches, err := filepath.Glob(filepath.Join(top, "scripts", "mutants", "*.patch"))
	if err != nil || len(patches) == 0 {
		t.Fatalf("%d patches, %v", len(patches), err)
	}
	for _, patch := range patches {
		check := exec.CommandContext(t.Context(), git, "apply", "--check", patch)
		check.Dir = top
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", filepath.Base(patch), err, out)
		}
	}
}
