package access_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// Two hundred wrong passwords arrive every second, and ten can be checked. Who
// has the right one is served within so many turns, in spite of all others.
func TestFlood(t *testing.T) {
	const (
		hashTime  = 100 * time.Millisecond
		attacker  = "198.51.100.1"
		perSecond = 200
	)
	cases := []struct {
		name string
		from func(i int) string // address of the attempts
		who  func(i int) string // login of the attempts
		// turns until these are served, their own included; 0: out of the cache
		elsewhere int // another login from another address
		sameLogin int // the login that is attacked, from another address
		proxied   int // another login from the same address
		proxiedIn int // the same when it has logged in from there before
	}{
		{name: "one login from one address", elsewhere: 2, sameLogin: 2, proxied: 2, proxiedIn: 2,
			from: func(int) string { return attacker }, who: func(int) string { return "admin" }},
		// Names never seen from the attacker's own address look like its attempts.
		{name: "many logins from one address", elsewhere: 2, sameLogin: 2, proxied: -1, proxiedIn: 2,
			from: func(int) string { return attacker }, who: func(i int) string { return fmt.Sprint("user", i) }},
		{name: "one login from twenty addresses", elsewhere: 21, sameLogin: 21, proxied: 22, proxiedIn: 2,
			from: func(i int) string { return fmt.Sprint("198.51.100.", 1+i%20) }, who: func(int) string { return "admin" }},
		{name: "many logins from twenty addresses", elsewhere: 21, sameLogin: 21, proxied: -1, proxiedIn: 2,
			from: func(i int) string { return fmt.Sprint("198.51.100.", 1+i%20) }, who: func(i int) string { return fmt.Sprint("user", i) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				a, r := newAuthenticator(t, s, access.AuthenticatorOptions{})
				for _, u := range []string{"admin", "cached", "elsewhere", "proxied", "proxiedIn"} {
					s.setUser(t, u, "right", false)
				}
				for _, in := range []string{"cached", "proxiedIn"} {
					check.Must(t, loginFrom(a, attacker+":1", in+":right"))
				}
				// No longer in the cache, but seen before.
				s.setUser(t, "proxiedIn", "right", false)
				var mu sync.Mutex
				var turns []time.Time // when each began; guarded by mu
				s.onRead = func(string) {
					mu.Lock()
					turns = append(turns, time.Now())
					mu.Unlock()
					time.Sleep(hashTime)
				}
				// begun returns how many turns had begun before a moment.
				begun := func(end time.Time) (n int) {
					mu.Lock()
					defer mu.Unlock()
					for n < len(turns) && turns[n].Before(end) {
						n++
					}
					return n
				}

				stop := make(chan struct{})
				var wg sync.WaitGroup
				var busy, refused atomic.Int64
				wg.Go(func() {
					tick := time.NewTicker(time.Second / perSecond)
					defer tick.Stop()
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						case <-tick.C:
						}
						wg.Go(func() {
							switch err := loginFrom(a, c.from(i)+":1", fmt.Sprintf("%s:wrong%d", c.who(i), i)); {
							case errors.Is(err, event.ErrBusy):
								busy.Add(1)
							case errors.Is(err, event.ErrNotAuthorized):
								refused.Add(1)
							default:
								t.Errorf("an attempt got %v", err)
							}
						})
					}
				})
				time.Sleep(20 * time.Second)

				// served logs in and reports how many turns that took. It counts neither the turn
				// that was running when the login came nor the next one, which begins when the
				// login is served.
				served := func(remote, who string) (int, error) {
					synctest.Wait()
					before := begun(time.Now().Add(1))
					err := loginFrom(a, remote+":1", who+":right")
					return max(0, begun(time.Now())-before), err
				}
				check := func(name, remote, who string, want int) {
					t.Helper()
					if want < 0 {
						return
					}
					if n, err := served(remote, who); err != nil || n > want {
						t.Errorf("%s: served after %d turns, %v; want %d", name, n, err, want)
					}
				}
				check("cached", attacker, "cached", 0)
				check("another login from elsewhere", "192.0.2.1", "elsewhere", c.elsewhere)
				check("the same login from elsewhere", "192.0.2.2", "admin", c.sameLogin)
				check("another login from the same address", attacker, "proxied", c.proxied)
				check("one seen before from the same address", attacker, "proxiedIn", c.proxiedIn)
				close(stop)
				wg.Wait()
				if busy.Load() == 0 || refused.Load() == 0 {
					t.Errorf("%d attempts were refused for want of room, %d because they were wrong", busy.Load(), refused.Load())
				}
				if n := hashes(r); n > uint64(len(turns))+2 {
					t.Errorf("%d hashes in %d turns", n, len(turns))
				}
			})
		})
	}
}

// A hundred connections with the right password at once are one hash, in the middle of a flood too.
func TestHundredConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.setUser(t, "jane", "right", false)
		a, r := newAuthenticator(t, s, access.AuthenticatorOptions{})
		s.onRead = func(string) { time.Sleep(100 * time.Millisecond) }
		var wg sync.WaitGroup
		for i := range 40 {
			// What becomes of it is no matter.
			wg.Go(func() { _ = loginFrom(a, "192.0.2.1:1", fmt.Sprint("other:", i)) })
		}
		synctest.Wait()
		before := hashes(r)
		for range 100 {
			wg.Go(func() { check.NoError(t, loginFrom(a, "192.0.2.1:1", "jane:right")) })
		}
		wg.Wait()
		if n := hashes(r) - before; n > 18 { // Seventeen of the others, which their line holds.
			t.Errorf("%d hashes", n)
		}
	})
}

// A caller who goes away does not take with it what others wait for.
func TestReaderOutlivesItsCaller(t *testing.T) {
	s := newStore()
	s.setUser(t, "jane", "x", false)
	a, _ := newAuthenticator(t, s, access.AuthenticatorOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	s.onRead = func(string) { cancel() }
	check.Must(t, check.Err(header(ctx, a, "192.0.2.1:1", basic("jane:x"))))
}
