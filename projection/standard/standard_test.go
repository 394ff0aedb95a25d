package standard

import "testing"

func TestEverySystemProjectionHasAHandler(t *testing.T) {
	for _, p := range All {
		h, err := New(p.Type, p.Source)
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		h.Close()
	}
}
