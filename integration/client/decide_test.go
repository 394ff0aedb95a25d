package client_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/annalsdb/annals/client"
)

// TestDecide: of writers that decide on the same events at once, each has seen all that were before
// its own.
func TestDecide(t *testing.T) {
	const writers, budget = 8, 40
	c := open(t, nil)
	query := client.Query{Items: []client.QueryItem{{Types: []string{"Spent"}, Tags: []string{"budget:decide"}}}}
	errSpent := errors.New("nothing is left")
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for {
				_, err := c.Decide(t.Context(), query, func(events []client.Found) ([]client.StreamEvent, error) {
					if len(events) >= budget {
						return nil, errSpent
					}
					return []client.StreamEvent{{Stream: fmt.Sprintf("decide-%d", w), Event: client.Event{
						Type: "Spent", Data: fmt.Appendf(nil, `{"before":%d}`, len(events)), Tags: []string{"budget:decide"},
					}}}, nil
				})
				if errors.Is(err, errSpent) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	n := 0
	for p, err := range c.QueryPages(t.Context(), query, client.QueryOptions{Count: 7, Leader: true}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.Events {
			var spent struct{ Before int }
			if err := e.Decode(&spent); err != nil || spent.Before != n {
				t.Errorf("event %d: %v, %s", n, err, e.Data)
			}
			n++
		}
	}
	if n != budget {
		t.Errorf("%d events of %d", n, budget)
	}
}
