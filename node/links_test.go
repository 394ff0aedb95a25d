package node_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/node"
)

// vault is a node with a stream that reader and administrators may read, and with an open one,
// loot, whose only event links to what is there.
type vault struct {
	*testing.T
	n    *node.Node
	conn *grpc.ClientConn
}

func openVault(t *testing.T) *vault {
	o := options(t.TempDir())
	o.Config.MemDb, o.Config.RunProjections = true, config.ProjectionsAll
	v := &vault{T: t, n: open(t, o)}
	conn, err := grpc.NewClient("passthrough:///"+v.n.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check.Must(t, err)
	v.conn = conn
	t.Cleanup(func() { _ = conn.Close() })
	for _, login := range []string{"plain", "reader"} {
		v.must("POST", "/users/", fmt.Sprintf(`{"loginName":%q,"fullName":"x","password":"pw"}`, login), "Content-Type", "application/json")
	}
	v.append("vault", "Hidden", `{"iban":"SECRET"}`)
	v.acl("vault", `["reader"]`)
	v.append("loot", "$>", "0@vault")
	return v
}

// must does something as the administrator.
func (v *vault) must(method, path, body string, headers ...string) {
	v.Helper()
	if code, text := call(v.T, v.n, method, path, body, admin(headers...)...); code/100 != 2 {
		v.Fatalf("%s %s: %d %s", method, path, code, text)
	}
}

func (v *vault) append(stream, eventType, data string) {
	v.Helper()
	kind := "application/json"
	if eventType == "$>" {
		kind = "application/octet-stream"
	}
	v.must("POST", "/streams/"+stream, data, "Content-Type", kind, "ES-EventType", eventType, "ES-EventId", testID())
}

func (v *vault) acl(stream, roles string) {
	v.Helper()
	v.must("POST", "/streams/"+stream+"/metadata", `{"$acl":{"$r":`+roles+`}}`, "Content-Type", "application/json", "ES-EventId", testID())
}

var ids atomic.Int64

func testID() string {
	return fmt.Sprintf("00000000-0000-4000-9000-%012d", ids.Add(1))
}

// credentialsOf are the headers of a caller; none for the empty one.
func credentialsOf(login string) []string {
	switch login {
	case "":
		return nil
	case "admin", "ops":
		return as(login, "changeit")
	}
	return as(login, "pw")
}

// over is a context for calls of a caller.
func (v *vault) over(ctx context.Context, login string) context.Context {
	password := "pw"
	switch login {
	case "":
		return ctx
	case "admin", "ops":
		password = "changeit"
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(login+":"+password)))
}

func readOf(stream string, subscribed bool) *streams.ReadReq {
	o := &streams.ReadReq_Options{
		StreamOption: &streams.ReadReq_Options_Stream{Stream: &streams.ReadReq_Options_StreamOptions{
			StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)},
			RevisionOption:   &streams.ReadReq_Options_StreamOptions_Start{Start: &shared.Empty{}},
		}},
		ResolveLinks: true, FilterOption: &streams.ReadReq_Options_NoFilter{NoFilter: &shared.Empty{}},
		UuidOption:    &streams.ReadReq_Options_UUIDOption{Content: &streams.ReadReq_Options_UUIDOption_String_{String_: &shared.Empty{}}},
		CountOption:   &streams.ReadReq_Options_Count{Count: 10},
		ControlOption: &streams.ReadReq_Options_ControlOption{Compatibility: 1},
	}
	if subscribed {
		o.CountOption = &streams.ReadReq_Options_Subscription{Subscription: &streams.ReadReq_Options_SubscriptionOptions{}}
	}
	return &streams.ReadReq{Options: o}
}

// rpcRead is what a read of loot sends up to the first event.
func (v *vault) rpcRead(login string, subscribed bool) string {
	ctx, cancel := context.WithTimeout(v.over(v.Context(), login), 20*time.Second)
	defer cancel()
	stream, err := streams.NewStreamsClient(v.conn).Read(ctx, readOf("loot", subscribed))
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for {
		m, err := stream.Recv()
		if err != nil {
			return text.String() + err.Error()
		}
		fmt.Fprintln(&text, m)
		if m.GetEvent() != nil {
			return text.String()
		}
	}
}

// consume is the first message that a group hands out.
func (v *vault) consume(login, group string) string {
	ctx, cancel := context.WithTimeout(v.over(v.Context(), login), 20*time.Second)
	defer cancel()
	stream, err := persistent.NewPersistentSubscriptionsClient(v.conn).Read(ctx)
	if err != nil {
		return err.Error()
	}
	if err := stream.Send(consumerOf(group)); err != nil {
		return err.Error()
	}
	var text strings.Builder
	for {
		m, err := stream.Recv()
		if err != nil {
			return text.String() + err.Error()
		}
		fmt.Fprintln(&text, m)
		if m.GetEvent() != nil {
			return text.String()
		}
	}
}

func consumerOf(group string) *persistent.ReadReq {
	return &persistent.ReadReq{Content: &persistent.ReadReq_Options_{Options: &persistent.ReadReq_Options{
		StreamOption: &persistent.ReadReq_Options_StreamIdentifier{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("loot")}},
		GroupName:    group, BufferSize: 1,
		UuidOption: &persistent.ReadReq_Options_UUIDOption{Content: &persistent.ReadReq_Options_UUIDOption_String_{String_: &shared.Empty{}}},
	}}}
}

// group makes a group that resolves links, and with park has its message parked.
func (v *vault) group(name string, park bool) {
	v.Helper()
	at := "/subscriptions/loot/" + name
	// A node that has begun to lead takes writes a moment before it has loaded its groups.
	testkit.Eventually(v, 20*time.Second, func() error {
		if code, text := call(v.T, v.n, "GET", "/subscriptions", "", admin("Accept", "application/json")...); code != 200 {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	v.must("PUT", at, `{"resolveLinktos":true,"startFrom":0}`, "Content-Type", "application/json")
	if !park {
		return
	}
	testkit.Eventually(v, 20*time.Second, func() error {
		_, text := call(v.T, v.n, "GET", at+"/1?embed=body", "", admin("Accept", "application/vnd.eventstore.competingatom+json")...)
		if _, rest, ok := strings.Cut(text, "/nack/"); ok {
			id, _, _ := strings.Cut(rest, `"`)
			v.must("POST", at+"/nack/"+id+"?action=park", "")
			return nil
		}
		return errors.New(text)
	})
}

// A link resolves only for callers who may read its target, whichever way they come.
func TestLinksOfOthers(t *testing.T) {
	v := openVault(t)
	v.group("parked", true)
	over := func(path string, headers ...string) func(string) string {
		return func(login string) string {
			_, text := call(v.T, v.n, "GET", path, "", append(headers, credentialsOf(login)...)...)
			return text
		}
	}
	doors := map[string]func(login string) string{
		"live tail":         over("/streams/loot?from=start&to=end", "Accept", "text/event-stream"),
		"live tail, search": over("/streams/loot?from=start&to=end&contains=SECRET", "Accept", "text/event-stream"),
		"long poll":         over("/streams/loot/0/forward/20?embed=body", "Accept", "application/vnd.eventstore.atom+json", "ES-LongPoll", "1"),
		"parked feed":       over("/subscriptions/viewparkedmessages/loot/parked/0/forward/20?embed=body", "Accept", "application/vnd.eventstore.competingatom+json"),
		"gRPC read":         func(login string) string { return v.rpcRead(login, false) },
		"gRPC subscription": func(login string) string { return v.rpcRead(login, true) },
		"desk": func(login string) (text string) {
			testkit.Eventually(v, 20*time.Second, func() error {
				code := 0
				if code, text = call(v.T, v.n, "GET", "/subscriptions/loot/parked/parked", "", credentialsOf(login)...); code == 200 && !strings.Contains(text, "vault") {
					return errors.New(text)
				}
				return nil
			})
			return text
		},
		"group": func(login string) (text string) {
			v.group("h"+login, false)
			testkit.Eventually(v, 20*time.Second, func() error {
				var code int
				code, text = call(v.T, v.n, "GET", "/subscriptions/loot/h"+login+"/1?embed=body", "",
					append([]string{"Accept", "application/vnd.eventstore.competingatom+json"}, credentialsOf(login)...)...)
				if code == 200 && !strings.Contains(text, "vault") {
					return errors.New(text)
				}
				return nil
			})
			return text
		},
		"gRPC group": func(login string) string {
			v.group("g"+login, false)
			return v.consume(login, "g"+login)
		},
		"query": func(login string) (text string) {
			if login == "" {
				return ""
			}
			at := "/projections/transient?name=q" + login
			call(v.T, v.n, "POST", at, `fromStream('loot').when({$any: (s, e) => ({seen: e.bodyRaw})})`, append([]string{"Content-Type", "application/javascript"}, credentialsOf(login)...)...)
			testkit.Eventually(v, 20*time.Second, func() error {
				_, statistics := call(v.T, v.n, "GET", "/projection/q"+login+"/statistics", "", credentialsOf(login)...)
				if !strings.Contains(statistics, "Completed") {
					return errors.New(statistics)
				}
				return nil
			})
			_, text = call(v.T, v.n, "GET", "/projection/q"+login+"/state", "", credentialsOf(login)...)
			return text
		},
	}
	for _, accept := range []string{"application/json", "application/vnd.eventstore.event+json", "application/vnd.eventstore.event+xml", "text/xml", "application/vnd.eventstore.atom+json"} {
		doors["event as "+accept] = over("/streams/loot/0?embed=body", "Accept", accept)
	}
	for _, embed := range []string{"rich", "body", "pretty", "tryharder", "content"} {
		doors["page with embed="+embed] = over("/streams/loot?embed="+embed, "Accept", "application/vnd.eventstore.atom+json")
	}
	for name, ask := range doors {
		shows := !strings.HasSuffix(name, "embed=rich") && !strings.HasSuffix(name, "embed=content")
		for _, login := range []string{"", "plain", "reader", "ops", "admin"} {
			text := ask(login)
			want := login == "reader" || login == "admin"
			if got := strings.Contains(text, "SECRET") || strings.Contains(text, "Hidden"); got && !want || want && shows && !got {
				t.Errorf("%s for %q: %s", name, login, text)
			}
		}
	}
}

// What callers hold open ends when they may not have it any more, although nothing happens there.
func TestHeldOpen(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(v *vault)
	}{
		{"deleted", func(v *vault) { v.must("DELETE", "/users/reader", "") }},
		{"disabled", func(v *vault) { v.must("POST", "/users/reader/command/disable", "") }},
		{"other password", func(v *vault) {
			v.must("POST", "/users/reader/command/reset-password", `{"newPassword":"other"}`, "Content-Type", "application/json")
		}},
		{"out of the group", func(v *vault) {
			v.must("PUT", "/users/reader", `{"fullName":"x","groups":[]}`, "Content-Type", "application/json")
		}},
		{"list changed", func(v *vault) { v.acl("loot", `["somebody"]`) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := openVault(t)
			v.must("PUT", "/users/reader", `{"fullName":"x","groups":["crew"]}`, "Content-Type", "application/json")
			v.acl("loot", `["crew"]`)
			v.group("held", false)
			ends, begun := make(chan error, 5), make(chan struct{}, 5)
			hold := func(name string, f func(ctx context.Context) error) {
				go func() {
					if err := f(v.over(t.Context(), "reader")); err != nil {
						ends <- fmt.Errorf("%s: %w", name, err)
						return
					}
					ends <- nil
				}()
			}
			refused := func(recv func() error) error {
				for i := 0; ; i++ {
					switch err := recv(); {
					case err == nil && i == 0:
						begun <- struct{}{}
					case status.Code(err) == codes.PermissionDenied:
						return nil
					case err != nil:
						return err
					}
				}
			}
			hold("subscription", func(ctx context.Context) error {
				s, err := streams.NewStreamsClient(v.conn).Read(ctx, readOf("loot", true))
				if err != nil {
					return err
				}
				return refused(func() error { _, err := s.Recv(); return err })
			})
			hold("consumer", func(ctx context.Context) error {
				s, err := persistent.NewPersistentSubscriptionsClient(v.conn).Read(ctx)
				if err == nil {
					err = s.Send(consumerOf("held"))
				}
				if err != nil {
					return err
				}
				return refused(func() error { _, err := s.Recv(); return err })
			})
			get := func(ctx context.Context, path string, headers ...string) (*http.Response, error) {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+v.n.Addr()+path, http.NoBody)
				if err != nil {
					return nil, err
				}
				r.Close = true
				headers = append(headers, credentialsOf("reader")...)
				for i := 0; i < len(headers); i += 2 {
					r.Header.Set(headers[i], headers[i+1])
				}
				return http.DefaultTransport.RoundTrip(r)
			}
			hold("live tail", func(ctx context.Context) error {
				a, err := get(ctx, "/streams/loot", "Accept", "text/event-stream")
				if err != nil {
					return err
				}
				defer a.Body.Close()
				if _, err := io.ReadFull(a.Body, make([]byte, 1)); a.StatusCode != http.StatusOK || err != nil {
					return fmt.Errorf("it is not open: %s, %v", a.Status, err)
				}
				begun <- struct{}{}
				if text, err := io.ReadAll(a.Body); err != nil || !strings.Contains(string(text), "denied") {
					return fmt.Errorf("%q, %v", text, err)
				}
				return nil
			})
			// A poll says nothing while it waits. One that comes after the change is refused as
			// well.
			hold("long poll", func(ctx context.Context) error {
				begun <- struct{}{}
				a, err := get(ctx, "/streams/loot/1/forward/20", "Accept", "application/vnd.eventstore.atom+json", "ES-LongPoll", "60")
				if err != nil {
					return err
				}
				if a.StatusCode != http.StatusUnauthorized {
					err = errors.New(a.Status)
				}
				return errors.Join(err, a.Body.Close())
			})
			for range 4 {
				<-begun
			}
			c.change(v)
			for range 4 {
				select {
				case err := <-ends:
					check.NoError(t, err)
				case <-time.After(20 * time.Second):
					t.Fatal("something is still open")
				}
			}
		})
	}
}

// No cache may give what one caller was shown of a link to another.
func TestLinksInCaches(t *testing.T) {
	v := openVault(t)
	for path, accept := range map[string]string{
		"/streams/loot":              "application/vnd.eventstore.atom+json",
		"/streams/loot/0/forward/20": "application/atom+xml",
		"/streams/loot/0":            "application/vnd.eventstore.event+json",
		"/streams/loot/head":         "application/vnd.eventstore.event+json",
		"/streams/$all/filtered?context=streamid&type=prefix&data=loot": "application/vnd.eventstore.atom+json",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v.n.URL()+path, nil)
		check.Must(t, err)
		request.SetBasicAuth("admin", "changeit")
		request.Header.Set("Accept", accept)
		answer, err := http.DefaultTransport.RoundTrip(request)
		check.Must(t, err)
		_ = answer.Body.Close()
		control, vary := answer.Header.Get("Cache-Control"), answer.Header.Get("Vary")
		if answer.StatusCode != http.StatusOK || !strings.Contains(control, "private") || !strings.Contains(vary, "Authorization") {
			t.Errorf("%s: %d, Cache-Control %q, Vary %q", path, answer.StatusCode, control, vary)
		}
	}
}
