package torture

import (
	"net/http"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// TestStopped: a run that begins right after another was stopped is odd, unless nodes start some by
// themselves.
func TestStopped(t *testing.T) {
	for _, scheduled := range []bool{false, true} {
		sc := newScene(t)
		answers := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text := `{"scavengeId":"x","scavengeResult":"Stopped"}`
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusBadRequest)
				text = "a scavenge is already running"
			}
			_, err := w.Write([]byte(text))
			check.NoError(t, err)
		})
		l := newLoad(1, newHTTP(newFakeWire(answers)), sc.hist, sc.book, &targets{})
		s := newScavenger(l)
		s.scheduled = scheduled
		for range 20 {
			s.stop(t.Context(), Target{Name: "node 0", Base: "http://leader"})
		}
		_, counts := sc.find.list()
		check.Equal(t, counts[kindAnswer] == 0, scheduled, "scheduled", scheduled)
	}
}
