//go:build !durablelocks

package simulation

import (
	"os"
	"os/exec"
	"testing"

	"github.com/annalsdb/annals/internal/testkit"
)

// TestAgain runs the tests of this package as a simulation needs them to be linked.
func TestAgain(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), testkit.Go(), "test", "-count=1", "-vet=off", "-tags=invariants,durablelocks", "-ldflags=-checklinkname=0", ".")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
