package projection_test

import (
	"context"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/memdb"
	"github.com/annalsdb/annals/projection"
	"github.com/annalsdb/annals/projection/handler"
)

// TestEndOfAnEndlessScript: commands and the end of leadership do not wait for a script
// that may take an hour.
func TestEndOfAnEndlessScript(t *testing.T) {
	for name, end := range map[string]func(*projection.Service) error{
		"abort":      func(s *projection.Service) error { return s.Command(t.Context(), "p", projection.Abort, admin) },
		"disable":    func(s *projection.Service) error { return s.Command(t.Context(), "p", projection.Disable, admin) },
		"leadership": func(*projection.Service) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			store := idleStore{memdb.Open(t, memdb.Options{})}
			begun := make(chan string, 1)
			s := projection.New(projection.Options{Store: store, ExecutionTimeout: time.Hour,
				May: func(context.Context, projection.Identity, string, bool) error { return nil },
				Compile: func(s projection.Source) (handler.Handler, error) {
					s.Log = func(text string) { begun <- text }
					return projection.Compile(s)
				}})
			s.Start(t.Context())
			defer s.Stop()
			<-s.Loaded()
			store.Append("s", "T", "{}", "")
			_, err := s.Create(t.Context(), projection.Creation{Name: "p", Mode: projection.Continuous, Enabled: true, By: admin,
				Query: `fromStream('s').when({$any() { log('begun'); for (;;) {} }})`})
			check.Must(t, err)
			<-begun
			check.Must(t, end(s))
			if f, err := s.Statistics("p"); err != nil || f.StateReason != "" {
				t.Errorf("%+v, %v", f, err)
			}
		})
	}
}
