package torture

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/check"
)

// servers starts one test server for each handler and returns them as targets.
func servers(t *testing.T, handlers ...http.HandlerFunc) *targets {
	t.Helper()
	var list []Target
	for i, h := range handlers {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		list = append(list, Target{Name: nodeName(i), Base: s.URL, Index: i})
	}
	nodes := &targets{}
	nodes.set(list)
	return nodes
}

func testClient(t *testing.T, nodes *targets, timeout time.Duration) *worker {
	t.Helper()
	h := newHTTP(nil)
	t.Cleanup(h.Close)
	w := (&load{http: h, targets: nodes, timeout: timeout}).worker(1)
	return &w
}

func TestFollowsRedirects(t *testing.T) {
	var leader string
	var got atomic.Pointer[string]
	nodes := servers(t,
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", leader+r.URL.RequestURI())
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
		func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			check.NoError(t, err)
			text := r.Method + " " + r.URL.Path + " " + r.Header.Get(client.HeaderExpectedVersion) + " " + string(body[:min(1, len(body))])
			got.Store(&text)
			w.Header().Set("Location", leader+"/streams/s/5")
			w.WriteHeader(http.StatusCreated)
		})
	leader = nodes.all()[1].Base
	c := testClient(t, nodes, time.Minute)
	a, err := c.do(t.Context(), nodes.all()[0], write(identity{tag: 1}, "s", 4, refOf(1, 0, 0), 2, false))
	check.Must(t, err)
	check.Equal(t, *got.Load(), "POST /streams/s 4 [", "the leader")
	if a.from.Index != 1 || c.choose().Index != 1 {
		t.Errorf("from %+v, next %+v", a.from, c.choose())
	}
	check.Equal(t, judgeWrite(a, err, http.StatusCreated, "s"), verdict{outcome: done, number: 5})
}

// TestJudgeWrite: what each answer says about the write.
func TestJudgeWrite(t *testing.T) {
	cases := []struct {
		name    string
		handler http.HandlerFunc
		want    outcome
		odd     bool
	}{
		{"wrong version", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(client.HeaderCurrentVersion, "7")
			w.WriteHeader(http.StatusBadRequest)
		}, conflict, false},
		{"not ready", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, refused, false},
		{"write timeout", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, pending, false},
		{"bad request", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }, refused, true},
		{"no location", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }, pending, true},
		{"cut off", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, pending, false},
		{"no answer", func(_ http.ResponseWriter, r *http.Request) {
			// The body must be read for the server to notice that the client is gone.
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, pending, false},
		{"in circles", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://"+r.Host+r.URL.Path)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, refused, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			nodes := servers(t, c.handler)
			timeout := time.Minute
			if c.name == "no answer" {
				timeout = 200 * time.Millisecond
			}
			a, err := testClient(t, nodes, timeout).do(t.Context(), nodes.all()[0], write(identity{tag: 1}, "s", 4, refOf(1, 0, 0), 1, true))
			if v := judgeWrite(a, err, http.StatusCreated, "s"); v.outcome != c.want || (v.odd != "") != c.odd {
				t.Errorf("%+v (%v)", v, err)
			}
		})
	}
	t.Run("no one listens", func(t *testing.T) {
		nodes := servers(t, func(http.ResponseWriter, *http.Request) {})
		gone := httptest.NewServer(http.NotFoundHandler())
		gone.Close()
		_, err := testClient(t, nodes, time.Minute).do(t.Context(), Target{Base: gone.URL}, read("/x", true, 0))
		var failed *client.UnreachableError
		if !errors.As(err, &failed) || failed.Sent || judgeWrite(nil, err, 201, "s").outcome != refused {
			t.Errorf("%v", err)
		}
	})
}

func TestIdentity(t *testing.T) {
	ids := identity{tag: 99}
	for _, r := range []ref{refOf(1, 0, 0), refOf(65534, 1<<32-1, 65535), refOf(3, 70000, 2)} {
		back, ours := ids.ref(ids.id(r))
		if !ours || back != r {
			t.Errorf("%x became %x", r, back)
		}
		one, again := ids.data(r), ids.data(r)
		if one != again || !json.Valid([]byte(one)) || !strings.Contains(one, ids.id(r).String()) {
			t.Errorf("data of %x: %.100s", r, one)
		}
	}
	if _, ours := (identity{tag: 98}).ref(ids.id(refOf(1, 0, 0))); ours {
		t.Error("an id of another run counts as ours")
	}
	if r := foreignRef("id", "type", "data"); !r.isForeign() || r == foreignRef("id", "typ", "edata") {
		t.Errorf("%x", r)
	}
}

// TestWatch: two nodes that stay leaders of one term are found, changes are counted.
func TestWatch(t *testing.T) {
	var term atomic.Int64
	var second atomic.Bool
	node := func(leads func() bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			host, port, _ := strings.Cut(r.Host, ":")
			state := "Follower"
			if leads() {
				state = "Leader"
			}
			_, _ = io.WriteString(w, `{"members":[{"state":"Shutdown","isAlive":false,"httpEndPointIp":"`+host+`","httpEndPointPort":`+port+`},`+
				`{"state":"`+state+`","isAlive":true,"httpEndPointIp":"`+host+`","httpEndPointPort":`+port+`,"epochNumber":`+string(rune('0'+term.Load()))+`}],"serverIp":"`+host+`","serverPort":`+port+`}`)
		}
	}
	nodes := servers(t, node(func() bool { return true }), node(second.Load))
	s := newScene(t)
	line := &timeline{start: time.Now()}
	h := newHTTP(nil)
	defer h.Close()
	w := newWatch(h, nodes.all, s.find, line)
	ctx := context.WithoutCancel(t.Context())
	term.Store(2)
	w.look(ctx)
	term.Store(3)
	w.look(ctx)
	if leader, at := w.leading(); leader != 0 || at != 3 || w.leaderChanges() != 1 {
		t.Errorf("leader %d, term %d, %d changes", leader, at, w.leaderChanges())
	}
	second.Store(true)
	for range twoLeadersAfter - 1 {
		w.look(ctx)
	}
	s.expect()
	w.look(ctx)
	s.expect(kindLeaders)
	if got := len(line.list()); got != 2 {
		t.Errorf("%d lines: %+v", got, line.list())
	}
	w.isOut(1, true)
	w.look(ctx)
	s.expect(kindLeaders, kindOutcast)
}
