package lint

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// mostModules is how many modules of others a build of the binary may download. A new dependency
// has to be worth its modules: change this number and the one in docs/release.md together.
const mostModules = 57

// TestModules counts the modules that a build with an empty cache downloads: those that packages of
// the binary come from, and those whose path is the beginning of such a package's, because the Go
// tool has to look whether they have it too.
func TestModules(t *testing.T) {
	packages := strings.Fields(string(goTool(t, "list", "-deps", "./cmd/annals")))
	for _, settled := range []string{
		"github.com/hashicorp/raft", "github.com/hashicorp/raft-boltdb/v2", "github.com/hashicorp/serf",
		"github.com/hashicorp/go-hclog", "github.com/julienschmidt/httprouter",
	} {
		if !slices.ContainsFunc(packages, func(p string) bool { return within(p, settled) }) {
			t.Errorf("the binary is not made with %s, as the design has it", settled)
		}
	}
	var module struct {
		Require []struct{ Path, Version string }
		Replace []struct{ Old struct{ Path string } }
	}
	check.Must(t, json.Unmarshal(goTool(t, "mod", "edit", "-json"), &module))
	var downloaded []string
	for _, required := range module.Require {
		for _, replaced := range module.Replace {
			if replaced.Old.Path == required.Path {
				required.Path = "" // It is in this repository.
			}
		}
		if slices.ContainsFunc(packages, func(p string) bool { return required.Path != "" && within(p, required.Path) }) {
			downloaded = append(downloaded, required.Path)
		}
	}
	if len(downloaded) > mostModules {
		t.Errorf("a build downloads %d modules, %d are allowed:\n%s",
			len(downloaded), mostModules, strings.Join(downloaded, "\n"))
	}
}

// goTool runs the Go tool in the root of the module, as for a release.
func goTool(t *testing.T, args ...string) []byte {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", args...)
	c.Dir = root(t)
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := c.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return out
}
