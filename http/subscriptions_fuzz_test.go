package httpapi

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/annalsdb/annals/http/atom"
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
				if rt != (route{}) {
					t.Fatalf("%q gave %+v", s, rt)
				}
			case rt.stream == "" || (rt.group == "") == strings.Contains(r.path, "{subscription}"):
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
			if got, rt := find(t, subscriptionRows(nil), path); got != "/subscriptions/{stream}/{subscription}"+want || rt.stream != s || rt.group != group {
				t.Fatalf("%q gave %q, %+v", path, got, rt)
			}
		}
		parked := strings.Replace(home, atom.GroupsPath, "/subscriptions/viewparkedmessages/", 1) + "/head/backward/1"
		if got, rt := find(t, subscriptionRows(nil), parked); !strings.Contains(got, "/backward/") || rt.stream != s || rt.group != group {
			t.Fatalf("%q gave %q, %+v", parked, got, rt)
		}
	})
}

func FuzzSettings(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `{"bufferSize":"500","RESOLVELINKTOS":"True","startFrom":-1}`, `{"startPosition":"x"}`, `{"namedConsumerStrategy":"","preferRoundRobin":true}`,
		`{"maxRetryCount":99999999999999999999}`, `[]`, `{`, "\xef\xbb\xbf{}", `<SubscriptionConfigData><BufferSize>5</BufferSize></SubscriptionConfigData>`, `<SubscriptionConfigData/>`, `<a>`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, form := range []form{formJSON, formTextXML} {
			m := decodeSettings(form, body)
			err := m.err
			if err == nil && form == formJSON && strings.TrimSpace(strings.TrimPrefix(string(body), string(byteOrderMark))) != "" {
				var want map[string]json.RawMessage
				if err := json.Unmarshal([]byte(strings.TrimPrefix(string(body), string(byteOrderMark))), &want); err != nil {
					t.Fatalf("%q was taken: %v", body, err)
				}
			}
			var s subscription.Settings
			if err == nil {
				s, err = m.settings()
			}
			var plain *subscription.SettingsError
			switch {
			case err == nil:
				if s.ValidateSizes() != nil || s.Strategy == "" {
					t.Fatalf("%q became %+v", body, s)
				}
			case errors.As(err, &plain) && !plain.Plain:
				t.Fatalf("%q was judged too early: %v", body, err)
			default:
				if p, known := problemOf(err, writing); !known || p.status != 400 || p.text == "" {
					t.Fatalf("%v became %+v", err, p)
				}
			}
		}
	})
}
