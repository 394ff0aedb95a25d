package api_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// standing answers what became of a caller.
type standing struct {
	err   atomic.Pointer[error]
	asked atomic.Int64
}

func (s *standing) set(err error) { s.err.Store(&err) }

func (s *standing) Renew(_ context.Context, p access.Principal) (access.Principal, error) {
	s.asked.Add(1)
	if err := s.err.Load(); err != nil && *err != nil {
		return access.Principal{}, *err
	}
	p.Groups = []string{"now"}
	return p, nil
}

// A lease ends within a second of the loss of its caller's rights, even without a request.
func TestLease(t *testing.T) {
	for _, c := range []struct {
		name        string
		standing    error
		may         error
		wantRefused bool
	}{
		{name: "nothing changed"},
		{name: "credentials that do not hold", standing: event.ErrNotAuthorized, wantRefused: true},
		{name: "right that is gone", may: event.ErrNotAuthorized, wantRefused: true},
		{name: "users that cannot be read", standing: event.ErrNotInitialized},
		{name: "list that cannot be read", may: event.ErrNotReady},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, gone := new(standing), atomic.Bool{}
				leases := api.NewLeases(s)
				defer leases.Close()
				l := leases.Open(t.Context(), access.Principal{Login: "jane"}, func(context.Context, *access.Principal) error {
					if gone.Load() {
						return c.may
					}
					return nil
				})
				defer l.Close()
				time.Sleep(3 * time.Second)
				if err := l.Check(t.Context()); err != nil || l.Who().Groups[0] != "now" {
					t.Fatalf("%v, %+v", err, l.Who())
				}
				s.set(c.standing)
				gone.Store(true)
				time.Sleep(api.JudgeEvery)
				synctest.Wait()
				if got := l.Context().Err() != nil; got != c.wantRefused || got != (l.Refused() != nil) {
					t.Fatalf("ended: %t, %v", got, l.Refused())
				}
				for _, judge := range []func(context.Context) error{l.Check, l.Judge} {
					if err := judge(t.Context()); errors.Is(err, event.ErrNotAuthorized) != c.wantRefused {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// A caller whose lease is closed is not judged, and without leases no timer is set.
func TestLeaseClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(standing)
		leases := api.NewLeases(s)
		l := leases.Open(t.Context(), access.System, func(context.Context, *access.Principal) error {
			t.Error("judged")
			return nil
		})
		l.Close()
		time.Sleep(time.Minute)
		if err := l.Judge(t.Context()); err != nil || s.asked.Load() != 0 {
			t.Fatalf("%v, asked %d times", err, s.asked.Load())
		}
		open := leases.Open(t.Context(), access.System, nil)
		leases.Close()
		check.MustBe(t, context.Cause(open.Context()), event.ErrClosed)
		check.Must(t, open.Refused())
		if late := leases.Open(t.Context(), access.System, nil); late.Context().Err() == nil {
			t.Fatal("open after Close")
		}
	})
}

func BenchmarkLease(b *testing.B) {
	leases := api.NewLeases(new(standing))
	defer leases.Close()
	for b.Loop() {
		leases.Open(b.Context(), access.System, nil).Close()
	}
}
