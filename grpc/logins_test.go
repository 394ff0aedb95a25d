package grpcapi_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
)

// TestRefusedLoginsAreBounded: of a flood of wrong credentials with long logins the log has a
// few short lines.
func TestRefusedLoginsAreBounded(t *testing.T) {
	var lines bytes.Buffer
	s := grpcapi.New(grpcapi.Options{
		Store: nil, Access: refusing{}, RefusedLogins: api.NewRefusedLogins(hclog.New(&hclog.LoggerOptions{Output: &lines})),
	})
	t.Cleanup(s.Close)
	h := s.Handler(http.NotFoundHandler())
	for range 500 {
		r := httptest.NewRequest(http.MethodPost, "/event_store.client.users.Users/Details", nil)
		r.ProtoMajor = 2
		r.Header.Set("Content-Type", "application/grpc")
		r.SetBasicAuth(strings.Repeat("x", 10_000), "secret")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		equal(t, "code", w.Header().Get("Grpc-Status"), "16")
	}
	// A second may end in between.
	if n := strings.Count(lines.String(), "\n"); n == 0 || n > 100 || lines.Len() > n*500 || strings.Contains(lines.String(), "secret") {
		t.Errorf("%d lines of %d bytes", n, lines.Len())
	}
}

type refusing struct{ grpcapi.Access }

func (refusing) Authenticate(*http.Request) (access.Principal, error) {
	return access.Principal{}, event.ErrNotAuthorized
}
