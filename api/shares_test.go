package api_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

// all are the kinds, with what there is of each, and what a lone user gets.
var all = map[api.Kind]struct{ most, lone int }{
	api.Tail: {1024, 672}, api.Scan: {6, 3}, api.Search: {64, 28}, api.Query: {64, 28}, api.Batch: {4096, 2688}, api.Poll: {4096, 2688},
	api.Consumer: {4096, 2688},
}

var (
	jane  = access.Principal{Login: "jane"}
	joe   = access.Principal{Login: "joe"}
	chief = access.Principal{Login: "chief", Groups: []string{access.RoleOps}}
)

// takeAll takes what a caller gets of a kind, from one address or from ever another one.
func takeAll(t *testing.T, s *api.Shares, k api.Kind, who access.Principal, from func(n int) string) (n int, refused string) {
	t.Helper()
	for {
		_, err := s.Take(k, who, from(n))
		var none *api.NoShare
		if errors.As(err, &none) && errors.Is(err, event.ErrBusy) {
			return n, none.Text
		}
		check.Must(t, err)
		n++
	}
}

// Where the caller of a number is.
func oneAddress(int) string     { return "10.0.0.1:7" }
func otherAddress(int) string   { return "10.0.0.2:7" }
func everyAddress(n int) string { return fmt.Sprintf("10.1.%d.%d:7", n/200, n%200) }
func oneNetwork(n int) string   { return fmt.Sprintf("[2001:db8::%x]:7", n+1) }
func everyNetwork(n int) string { return fmt.Sprintf("[2001:db8:1:%x::1]:7", n) }
func anotherOfThat(int) string  { return "[2001:db8:1:1::ffff]:7" }

// Each new caller finds something, however many there were before, and operators find the most of
// it.
func TestSharesAreFair(t *testing.T) {
	for k, want := range all {
		for name, c := range map[string]struct {
			greedy    access.Principal
			at        func(int) string
			modest    access.Principal
			elsewhere func(int) string
		}{
			"a user at one address":            {jane, oneAddress, joe, otherAddress},
			"a user at many addresses":         {jane, everyAddress, joe, otherAddress},
			"no user at one address":           {access.Anonymous, oneAddress, access.Anonymous, otherAddress},
			"no user in one network":           {access.Anonymous, oneNetwork, access.Anonymous, otherAddress},
			"no user, and a user where it is":  {jane, everyAddress, access.Anonymous, otherAddress},
			"a user in a network of many more": {jane, everyNetwork, joe, anotherOfThat},
		} {
			s := api.NewShares(api.SharesOptions{})
			got, text := takeAll(t, s, k, c.greedy, c.at)
			if got != want.lone || text == "" {
				t.Errorf("kind %d, %s: %d (%s), want %d", k, name, got, text, want.lone)
			}
			for i := range 3 { // Others, one after another, each as greedy.
				next := c.modest
				if next.Login != "" {
					next.Login = fmt.Sprint(next.Login, i)
				}
				n, text := takeAll(t, s, k, next, func(n int) string {
					if i == 0 {
						return c.elsewhere(n)
					}
					return fmt.Sprintf("10.9.%d.1:1", i)
				})
				if n == 0 && (i == 0 || want.most > 6) {
					t.Errorf("kind %d, %s: caller %d got nothing: %s", k, name, i, text)
				}
			}
			if n, _ := takeAll(t, s, k, chief, oneAddress); n < max(1, want.most/8) {
				t.Errorf("kind %d, %s: an operator got %d", k, name, n)
			}
			check.Equal(t, s.Held(k), want.most, "kind", k, name, "are held")
		}
	}
}

// The text says which bound it was, and whose.
func TestNoShare(t *testing.T) {
	for name, c := range map[string]struct {
		who  access.Principal
		at   func(int) string
		o    api.SharesOptions
		want string
		n    int
	}{
		"user":     {jane, everyAddress, api.SharesOptions{Tails: 16}, "Too many live connections: user jane has 11 of 16 live tails and subscriptions", 11},
		"address":  {access.Anonymous, oneAddress, api.SharesOptions{Tails: 16}, "Too many live connections: address 10.0.0.1 has 11 of 16 live tails and subscriptions", 11},
		"all":      {chief, oneAddress, api.SharesOptions{Tails: 16}, "Too many live connections: all 16 live tails and subscriptions are taken", 16},
		"few":      {jane, oneAddress, api.SharesOptions{Tails: 2}, "Too many live connections: all 2 live tails and subscriptions are taken", 2},
		"reserve":  {access.Anonymous, everyAddress, api.SharesOptions{Tails: 16}, "Too many live connections: 14 of 16 live tails and subscriptions are taken, the rest is kept for operators", 14},
		"insecure": {access.System, oneAddress, api.SharesOptions{Tails: 16, Insecure: true}, "Too many live connections: address 10.0.0.1 has 11 of 16 live tails and subscriptions", 11},
	} {
		c.o.Stats = new(stats.Registry)
		if n, text := takeAll(t, api.NewShares(c.o), api.Tail, c.who, c.at); n != c.n || text != c.want {
			t.Errorf("%s: %d, %q", name, n, text)
		}
	}
}

// What is given back is there again, once.
func TestSharesAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := api.NewShares(api.SharesOptions{Tails: 1})
		release, err := s.Take(api.Tail, jane, "10.0.0.1:1")
		check.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Wait(ctx, api.Tail, joe, "10.0.0.2:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while it was held: %v", err)
		}
		time.AfterFunc(time.Minute, release)
		begun := time.Now()
		next, err := s.Wait(t.Context(), api.Tail, joe, "10.0.0.2:1")
		if took := time.Since(begun); err != nil || took != time.Minute {
			t.Fatalf("%v after %v", err, took)
		}
		release()
		check.Equal(t, s.Held(api.Tail), 1, "are held")
		next()
		check.Equal(t, s.Held(api.Tail), 0, "are held")
	})
}

func BenchmarkShares(b *testing.B) {
	s := api.NewShares(api.SharesOptions{})
	for b.Loop() {
		release := check.Value(s.Take(api.Poll, jane, "10.0.0.1:5000")).Must(b)
		release()
	}
}
