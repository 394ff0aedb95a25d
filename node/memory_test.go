package node

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// What a container or an operator allows is found, and a bound that is none is passed over.
func TestMemoryThereIs(t *testing.T) {
	file := func(text string) []string {
		name := filepath.Join(t.TempDir(), "memory.max")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{filepath.Join(t.TempDir(), "missing"), name}
	}
	all := memoryThereIs(nil)
	if all <= 0 {
		t.Fatalf("the machine has %d bytes", all)
	}
	for text, want := range map[string]int64{"max\n": all, "33554432\n": 32 << 20, "": all, "9223372036854771712\n": all} {
		if got := memoryThereIs(file(text)); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(24 << 20))
	if got := memoryThereIs(file("33554432\n")); got != 24<<20 {
		t.Errorf("with GOMEMLIMIT: %d bytes", got)
	}
}
