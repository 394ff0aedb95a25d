package grpcapi_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/grpc/users"
	"github.com/annalsdb/annals/internal/check"
)

// TestRefusedLoginsAreBounded: of a flood of wrong credentials with long logins the log has a
// few short lines.
func TestRefusedLoginsAreBounded(t *testing.T) {
	var lines bytes.Buffer
	conn, _ := serve(t, grpcapi.Options{Node: api.Node{Access: refusing{}, RefusedLogins: api.NewRefusedLogins(hclog.New(&hclog.LoggerOptions{Output: &lines}))}})
	ctx := by(t.Context(), strings.Repeat("x", 10_000)+":secret")
	begun := time.Now()
	for range 500 {
		stream, err := users.NewUsersClient(conn).Details(ctx, &users.DetailsReq{})
		if err == nil {
			_, err = stream.Recv()
		}
		check.Equal(t, status.Code(err), codes.Unauthenticated, "code")
	}
	most := 10 * (2 + int(time.Since(begun).Seconds())) // Ten a second.
	if n := strings.Count(lines.String(), "\n"); n == 0 || n > most || lines.Len() > n*500 || strings.Contains(lines.String(), "secret") {
		t.Errorf("%d lines of %d bytes", n, lines.Len())
	}
}

type refusing struct{ api.Access }

func (refusing) Authenticate(*http.Request) (access.Principal, error) {
	return access.Principal{}, event.ErrNotAuthorized
}

// A panic ends the call that it befell, not the node.
func TestPanics(t *testing.T) {
	ask := func(o grpcapi.Options) codes.Code {
		conn, _ := serve(t, o)
		stream, err := users.NewUsersClient(conn).Details(by(t.Context(), "x:changeit"), &users.DetailsReq{Options: &users.DetailsReq_Options{LoginName: "x"}})
		if err == nil {
			_, err = stream.Recv()
		}
		return status.Code(err)
	}
	check.Equal(t, ask(grpcapi.Options{Node: api.Node{Access: panicking{}}}), codes.Internal, "while the caller is authenticated")
	check.Equal(t, ask(grpcapi.Options{Node: api.Node{Access: anyone{}, Users: &panicking{}}}), codes.Internal, "in the method")
}

type panicking struct {
	api.Access
	api.Users
}

func (panicking) Authenticate(*http.Request) (access.Principal, error) { panic("out of its mind") }
