package node

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// What a container or an operator allows is found, and a bound that is none is passed over.
func TestMemoryThereIs(t *testing.T) {
	file := func(text string) []string {
		name := filepath.Join(t.TempDir(), "memory.max")
		check.Must(t, os.WriteFile(name, []byte(text), 0o600))
		return []string{filepath.Join(t.TempDir(), "missing"), name}
	}
	all := memoryThereIs(nil)
	if all <= 0 {
		t.Fatalf("the machine has %d bytes", all)
	}
	for text, want := range map[string]int64{"max\n": all, "33554432\n": 32 << 20, "": all, "9223372036854771712\n": all} {
		check.Equal(t, memoryThereIs(file(text)), want, text, "bytes")
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(24 << 20))
	check.Equal(t, memoryThereIs(file("33554432\n")), 24<<20, "with GOMEMLIMIT ... bytes")
}
