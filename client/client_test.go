package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/client"
)

// serve starts something that answers like a node.
func serve(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s.URL
}

// absent is an address at which no server listens. A free port would not do: the next test server
// may get it.
const absent = "http://127.0.0.1:1"

func open(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"h:1": "http://h:1", "h": "http://h:2113", "[::1]": "http://[::1]:2113", "h/proxy": "http://h:2113/proxy", "http://h": "http://h", "https://h/": "https://h", "http://h/proxy/": "http://h/proxy", "http://[::1]:2113": "http://[::1]:2113",
		"": "", "http://": "", "ftp://h": "", "http://u:secret@h": "", "http://h?a=b": "", "http://h:x": "", "http://h#f": "",
	} {
		if got, err := client.Address(text); got != want || (err == nil) != (want != "") || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := client.New(client.Options{Nodes: []string{"h:1", "ftp://h"}}); err == nil {
		t.Error("no error")
	}
}

// TestAppendRepeats: an append without an answer is sent again with the same ids, to another node.
func TestAppendRepeats(t *testing.T) {
	var mu sync.Mutex
	var ids []string
	take := func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var events []client.Event
		if err := json.NewDecoder(r.Body).Decode(&events); err != nil || len(events) != 1 {
			t.Errorf("%v: %+v", err, events)
			return
		}
		ids = append(ids, events[0].ID)
	}
	for _, c := range []struct {
		name  string
		first http.HandlerFunc
		sent  int
	}{
		{"answer is lost", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 2},
		{"not ready", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, 2},
		{"outcome is not known", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 2},
		{"redirected in circles", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://"+r.Host+r.URL.Path)
			w.WriteHeader(307)
		}, 6},
		{"nothing listens", nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			ids = nil
			first := absent
			if c.first != nil {
				first = serve(t, func(w http.ResponseWriter, r *http.Request) { take(r); c.first(w, r) })
			}
			second := serve(t, func(w http.ResponseWriter, r *http.Request) {
				take(r)
				w.Header().Set("Location", "http://"+r.Host+"/streams/a%20b/7")
				w.WriteHeader(201)
			})
			number, err := open(t, client.Options{Nodes: []string{first, second}}).Append(t.Context(), "a b", 6, client.Event{Type: "t", Data: []byte("{}")})
			mu.Lock()
			defer mu.Unlock()
			if err != nil || number != 7 || len(ids) != c.sent || len(slices.Compact(ids)) != 1 || len(ids[0]) != 36 {
				t.Errorf("%d, %v, sent with %q", number, err, ids)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	kinds := []error{
		client.ErrNotFound, client.ErrDeleted, client.ErrExists, client.ErrAccessDenied, client.ErrWrongVersion, client.ErrNotLeader, client.ErrUnavailable,
	}
	for _, c := range []struct {
		name    string
		status  int
		current string
		body    string
		kind    error
		says    string
	}{
		{"not there", 404, "", "said\nso", client.ErrNotFound, "said so"},
		{"deleted", 410, "", "Stream deleted", client.ErrDeleted, "Stream deleted"},
		{"no password", 401, "", "", client.ErrAccessDenied, "Unauthorized, no user is given ("},
		{"wrong version", 400, "4", "Wrong expected EventNumber", client.ErrWrongVersion, "Wrong expected EventNumber, the last event of the stream is 4"},
		{"wrong version of none", 400, "-1", "Wrong expected EventNumber", client.ErrWrongVersion, "there is no such stream"},
		{"bad request", 400, "", "Write request body invalid.", nil, "Write request body invalid."},
		{"a group that is there", 409, "", `{"correlationId":"1","reason":"Group 'g' already exists.","result":"AlreadyExists"}`, client.ErrExists, ": Group 'g' already exists. ("},
		{"a user that is there", 409, "", `{"loginName":"x","success":false,"error":"Conflict"}`, client.ErrExists, ": Conflict ("},
		{"not ready", 503, "", "Server Is Not Ready", client.ErrUnavailable, "Server Is Not Ready"},
		{"too late", 408, "", "", client.ErrUnavailable, "Request Timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked atomic.Int32
			node := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				if c.current != "" {
					w.Header().Set(client.HeaderCurrentVersion, c.current)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			o := client.Options{Nodes: []string{node}, RetryFor: -1}
			_, err := open(t, o).Append(t.Context(), "s", 0, client.Event{Type: "t", Data: []byte("1")})
			refused, ok := errors.AsType[*client.Error](err)
			if !ok || !strings.Contains(err.Error(), c.says) || !client.HasStatus(err, c.status) || asked.Load() != 1 {
				t.Fatalf("%v, asked %d times", err, asked.Load())
			}
			if current, ok := refused.CurrentVersion(); ok != (c.current != "") || ok && strconv.FormatInt(current, 10) != c.current {
				t.Errorf("version %d, %t", current, ok)
			}
			for _, kind := range kinds {
				if errors.Is(err, kind) != (kind == c.kind) {
					t.Errorf("is %v: %t", kind, errors.Is(err, kind))
				}
			}
		})
	}
}

// TestRefusedUser: the refusal of a user names it, and not its password.
func TestRefusedUser(t *testing.T) {
	node := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	c := open(t, client.Options{Nodes: []string{node}, RetryFor: -1, Login: url.UserPassword("ops", "secret")})
	_, err := c.Read(t.Context(), "s", client.Reading{})
	const want = `Unauthorized, user "ops" has another password, or may not do this (status 401)`
	if err == nil || !errors.Is(err, client.ErrAccessDenied) || !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
	// The user of a request comes before that of the client.
	a, err := c.Do(t.Context(), client.Request{Path: "/info", Login: url.UserPassword("jane", "secret")})
	if err != nil || !strings.Contains(a.Err().Error(), `user "jane"`) {
		t.Errorf("%v, %v", err, a.Err())
	}
}

// TestNoProjections: a node without projections has none of their paths.
func TestNoProjections(t *testing.T) {
	node := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Not Found", http.StatusNotFound) })
	const none, unknown = ": the node runs no projections: see its option RunProjections (", ": there is no such projection, or the node runs none: see its option RunProjections ("
	for _, prefix := range []string{"", "/proxy"} {
		c := open(t, client.Options{Nodes: []string{node + prefix}, RetryFor: -1})
		p := c.Projection("orders")
		_, list := c.Projections(t.Context())
		_, state := p.State(t.Context(), "")
		_, statistics := p.Statistics(t.Context())
		_, script := p.Script(t.Context())
		_, read := c.Read(t.Context(), "projections", client.Reading{})
		for name, e := range map[string]struct {
			err  error
			says string
		}{
			"create": {p.Create(t.Context(), "fromAll()", client.ProjectionOptions{}), none}, "list": {list, none},
			"state": {state, unknown}, "statistics": {statistics, unknown}, "script": {script, unknown}, "update": {p.Update(t.Context(), "fromAll()"), unknown},
			"enable": {p.Enable(t.Context()), unknown}, "reset": {p.Reset(t.Context()), unknown},
			"read": {read, ": Not Found ("},
		} {
			if e.err == nil || !strings.Contains(e.err.Error(), e.says) || !errors.Is(e.err, client.ErrNotFound) || errors.Is(e.err, client.ErrNoProjections) != (e.says == none) {
				t.Errorf("%s at %q: %v", name, prefix, e.err)
			}
		}
	}
}

// TestSent: whether a node may have got a request is known.
func TestSent(t *testing.T) {
	hanging := make(chan struct{})
	for _, c := range []struct {
		name string
		node string
		sent bool
		want string
	}{
		{"refused connection", absent, false, "no node listens there"},
		{"broken off", serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), true, "does not answer: EOF"},
		{"cut body", serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "abc")
		}), true, "unexpected EOF"},
		{"hangs", serve(t, func(http.ResponseWriter, *http.Request) { <-hanging }), true, "nothing within 50ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := open(t, client.Options{Nodes: []string{c.node}}).Do(t.Context(), client.Request{Path: "/", Body: []byte("x"), Timeout: 50 * time.Millisecond})
			var failed *client.UnreachableError
			if !errors.Is(err, client.ErrUnavailable) || !errors.As(err, &failed) || failed.Sent != c.sent || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %+v", err, failed)
			}
		})
	}
	close(hanging)
}

// TestRedirect: the leader gets the request with its body and credentials, and the next one at
// once.
func TestRedirect(t *testing.T) {
	var asked []string
	leader := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		asked = append(asked, fmt.Sprintf("%s %s %s:%s %s", r.Method, r.URL, user, password, body))
	})
	// Another name for the same machine: the standard client would not send the password there.
	leader = strings.Replace(leader, "127.0.0.1", "localhost", 1)
	var redirected atomic.Int32
	follower := serve(t, func(w http.ResponseWriter, r *http.Request) {
		redirected.Add(1)
		w.Header().Set("Location", leader+r.URL.RequestURI())
		w.WriteHeader(307)
	})
	c := open(t, client.Options{Nodes: []string{follower}, Login: url.UserPassword("u", "p")})
	q := client.Request{Path: "/x?y=z", Body: []byte("b")}
	for i := range 2 {
		a, err := c.Do(t.Context(), q)
		if err != nil || a.Node != leader || asked[i] != "POST /x?y=z u:p b" || (len(a.Via) == 1) != (i == 0) {
			t.Fatalf("%v, %v, via %q, asked %q", a, err, a.Via, asked)
		}
	}
	q.Node, q.Stay = follower, true
	if a, err := c.Do(t.Context(), q); err != nil || a.Status != 307 || redirected.Load() != 2 || c.Node() != leader {
		t.Errorf("%v, %v, redirected %d times, next %s", a, err, redirected.Load(), c.Node())
	}
}

// TestReplica: a write that a read-only replica refuses goes to the leader that it names.
func TestReplica(t *testing.T) {
	leader := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://"+r.Host+r.URL.Path+"/0")
		w.WriteHeader(201)
	})
	replica := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", leader+r.URL.RequestURI())
		http.Error(w, "Operation Not Supported on Read Only Replica", 500)
	})
	c := open(t, client.Options{Nodes: []string{replica}})
	if n, err := c.Append(t.Context(), "s", client.NoStream, client.Event{Type: "t", Data: []byte("1")}); err != nil || n != 0 || c.Node() != leader {
		t.Errorf("%d, %v, next %s", n, err, c.Node())
	}
	a, err := c.Do(t.Context(), client.Request{Method: "POST", Path: "/streams/s", Node: replica, Stay: true})
	if err = errors.Join(err, a.Err()); !errors.Is(err, client.ErrNotLeader) {
		t.Errorf("%v", err)
	}
}

// TestUnsure: a command whose answer was lost is sent again, and a refusal then says that it was
// done. A command that must not be done twice is sent again only if no node got it.
func TestUnsure(t *testing.T) {
	const lost = 0
	errRefused := errors.New("an error of no kind")
	settings := client.GroupSettings{MaxRetryCount: 1}
	for _, c := range []struct {
		name    string
		answers []int
		do      func(c *client.Client) error
		kind    error // of the error, if there is one
	}{
		{"create a group", []int{lost, 409}, func(c *client.Client) error { return c.Group("s", "g").Create(t.Context(), settings) }, nil},
		{"create a group that is there", []int{503, 409}, func(c *client.Client) error { return c.Group("s", "g").Create(t.Context(), settings) }, client.ErrExists},
		{"delete a group", []int{lost, 404}, func(c *client.Client) error { return c.Group("s", "g").Delete(t.Context()) }, nil},
		{"delete no group", []int{404}, func(c *client.Client) error { return c.Group("s", "g").Delete(t.Context()) }, client.ErrNotFound},
		{"delete", []int{500, 204}, func(c *client.Client) error { return c.Delete(t.Context(), "s", 3) }, nil},
		{"tombstone", []int{lost, 410}, func(c *client.Client) error { return c.Tombstone(t.Context(), "s", 3) }, nil},
		{"tombstone twice", []int{410}, func(c *client.Client) error { return c.Tombstone(t.Context(), "s", 3) }, client.ErrDeleted},
		{"create a projection", []int{lost, 409}, func(c *client.Client) error {
			return c.Projection("p").Create(t.Context(), "fromAll()", client.ProjectionOptions{})
		}, nil},
		{"delete a projection that runs", []int{500}, func(c *client.Client) error {
			return c.Projection("p").Delete(t.Context(), client.DeleteProjection{})
		}, errRefused},
		{"rebuild a projection", []int{lost, 503, 200}, func(c *client.Client) error {
			return c.Projection("p").Rebuild(t.Context(), "fromAll()", nil)
		}, nil},
		{"swap a rebuild", []int{lost, 200}, func(c *client.Client) error { return c.Projection("p").SwapRebuild(t.Context()) }, nil},
		{"end a rebuild", []int{lost, 404}, func(c *client.Client) error { return c.Projection("p").EndRebuild(t.Context()) }, nil},
		{"reset", []int{lost}, func(c *client.Client) error { return c.Projection("p").Reset(t.Context()) }, client.ErrUnavailable},
		{"reset later", []int{503, 200}, func(c *client.Client) error { return c.Projection("p").Reset(t.Context()) }, nil},
		{"delete a user", []int{lost, 404}, func(c *client.Client) error { return c.User("u").Delete(t.Context()) }, nil},
		{"change a password", []int{lost}, func(c *client.Client) error { return c.User("u").ChangePassword(t.Context(), "a", "b") }, client.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked atomic.Int32
			node := serve(t, func(w http.ResponseWriter, r *http.Request) {
				n := int(asked.Add(1))
				if n > len(c.answers) || c.answers[n-1] == lost {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(c.answers[n-1])
			})
			err := c.do(open(t, client.Options{Nodes: []string{node}}))
			if c.kind == errRefused && client.HasStatus(err, 500) {
				return
			}
			if (err == nil) != (c.kind == nil) || err != nil && !errors.Is(err, c.kind) || int(asked.Load()) != len(c.answers) {
				t.Errorf("%v, asked %d times", err, asked.Load())
			}
		})
	}
}

func TestDownloadResumes(t *testing.T) {
	const text = "0123456789"
	var ranges []string
	var answers int
	node := serve(t, func(w http.ResponseWriter, r *http.Request) {
		from := 0
		ranges = append(ranges, r.Header.Get("Range"))
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
			w.WriteHeader(http.StatusPartialContent)
		}
		if answers++; answers == 3 {
			_, _ = io.WriteString(w, text[from:])
			return
		}
		_, _ = io.WriteString(w, text[from:from+3])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	body, err := open(t, client.Options{Nodes: []string{node}}).Download(t.Context(), client.Request{Path: "/file"}, 2)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(body)
	if err != nil || string(got) != text[2:] || !slices.Equal(ranges, []string{"bytes=2-", "bytes=5-", "bytes=8-"}) {
		t.Errorf("%q, %v, asked for %q", got, err, ranges)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	gone := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such file", 404) })
	if _, err := open(t, client.Options{Nodes: []string{gone}}).Download(t.Context(), client.Request{Path: "/file"}, 0); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
