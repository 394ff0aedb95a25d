package httpapi

import (
	"net/url"
	"strings"
	"testing"

	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/subscription"
)

func FuzzSubscriptionPath(f *testing.F) {
	groups := newRouter(subscriptionRows(nil))
	for _, s := range []string{
		"/subscriptions", "/subscriptions/", "/subscriptions/restart", "/subscriptions/a%2Fb/g/1", "/subscriptions/s/g/info", "/subscriptions/s/g/ack/x", "/subscriptions/s//1",
		"/subscriptions/viewparkedmessages/s/g/head/backward/1", "/subscriptions/viewparkedmessages/s/g/0/forward/", "//subscriptions/", "/subscriptions/%00/\xff", "/subscriptions/a/b/c/d/e/f/g",
	} {
		f.Add(s, "g")
	}
	f.Fuzz(func(t *testing.T, s, group string) {
		if u, err := url.ParseRequestURI(s); err == nil {
			switch r, rt := groups.match(u); {
			case r == nil, r.path == "/subscriptions":
				if rt != (request.Route{}) {
					t.Fatalf("%q gave %+v", s, rt)
				}
			case rt.Stream == "" || (rt.Group == "") == strings.Contains(r.path, "{subscription}"):
				t.Fatalf("%q gave %+v", s, rt)
			}
		}
		if s == "" || group == "" {
			return
		}
		// The addresses of a stream and a group of any name lead back to them.
		home := string(atom.AppendGroupURI(nil, subscription.Key{Stream: s, Group: group}))
		for path, want := range map[string]string{
			home: "", home + "/1": "/{count}", home + "/info": "/info", home + "/replayParked": "/replayParked",
			home + "/ack/1": "/ack/{id}", home + "/nack/1": "/nack/{id}", home + "/ack": "/ack",
		} {
			if got, rt := find(t, subscriptionRows(nil), path); got != "/subscriptions/{stream}/{subscription}"+want || rt.Stream != s || rt.Group != group {
				t.Fatalf("%q gave %q, %+v", path, got, rt)
			}
		}
		parked := strings.Replace(home, atom.GroupsPath, "/subscriptions/viewparkedmessages/", 1) + "/head/backward/1"
		if got, rt := find(t, subscriptionRows(nil), parked); !strings.Contains(got, "/backward/") || rt.Stream != s || rt.Group != group {
			t.Fatalf("%q gave %q, %+v", parked, got, rt)
		}
	})
}
