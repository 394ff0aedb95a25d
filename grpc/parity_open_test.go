package grpcapi_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/annalsdb/annals/config"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/testkit/onenode"
	"github.com/annalsdb/annals/internal/testkit/permission"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// callsHead is where the page of permissions comes to gRPC. A test of HTTP writes what is above.
const callsHead = "\n## Calls over gRPC\n"

// TestPermissionsOfCalls compares who may call what with the page of permissions.
func TestPermissionsOfCalls(t *testing.T) {
	const name = "../docs/permissions.md"
	var b strings.Builder
	b.WriteString(callsHead + `
Only the leader answers calls with a yes in the fourth column. Those with a yes in the last are
recorded in ` + "`$operations`" + `, be they done or refused, and so are appends to metadata and ` + "`$settings`" + `.

| Call | Who | Without credentials | Leader | Recorded |
| --- | --- | --- | --- | --- |
`)
	yes := map[bool]string{true: "yes"}
	for _, path := range slices.Sorted(maps.Keys(grpcapi.Methods)) {
		op := grpcapi.Methods[path]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", path[strings.LastIndexByte(path, '.')+1:], permission.Who(&op.May), permission.Opened(&op.May), yes[op.Leader], yes[op.Recorded])
	}
	page := string(check.Value(os.ReadFile(name)).Must(t))
	above, calls, _ := strings.Cut(page, callsHead)
	if *update {
		check.Must(t, os.WriteFile(name, []byte(above+b.String()), 0o644))
		return
	}
	check.Equal(t, callsHead+calls, b.String(), name)
}

// TestEveryCallIsInTheTable: a call that no row tells of would be refused to everyone.
func TestEveryCallIsInTheTable(t *testing.T) {
	listed := invoke(t, startNode(t, onenode.Projections), "admin", "server_features.ServerFeatures/GetSupportedMethods", `{}`)
	check.Equal(t, strings.Count(listed, `"methodName"`), len(grpcapi.Methods))
}

// endsAlike has a user open a tail over HTTP and a subscription over gRPC, takes its right away,
// and expects both to end.
func endsAlike(t *testing.T, address, login string, takeAway func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r := check.Value(http.NewRequestWithContext(ctx, http.MethodGet, address+"/streams/closed", nil)).Must(t)
	r.SetBasicAuth(login, "changeit")
	r.Header.Set("Accept", "text/event-stream")
	tail := check.Value(http.DefaultClient.Do(r)).Must(t)
	check.MustEqual(t, tail.StatusCode, http.StatusOK)
	full, m := methodOf(t, "streams.Streams/Read")
	in := newMessage(t, m.Input())
	check.Must(t, protojson.Unmarshal([]byte(strings.Replace(readOf(`"stream":{"streamIdentifier":{"streamName":"Y2xvc2Vk"},"start":{}}`), `"count":"1"`, `"subscription":{}`, 1)), in))
	call := check.Value(dial(t, address).NewStream(by(ctx, login), &grpc.StreamDesc{ServerStreams: true}, full)).Must(t)
	check.Must(t, call.SendMsg(in))
	check.Must(t, call.CloseSend())
	check.Must(t, call.RecvMsg(newMessage(t, m.Output())))
	takeAway()
	_, err := io.Copy(io.Discard, tail.Body)
	check.NoError(t, err, "the tail of", login)
	check.NoError(t, tail.Body.Close())
	for err == nil {
		err = call.RecvMsg(newMessage(t, m.Output()))
	}
	check.Equal(t, status.Code(err), codes.PermissionDenied, "the subscription of", login)
}

// TestRightsEndAlike: what is open over either interface ends with the right to it.
func TestRightsEndAlike(t *testing.T) {
	address := nodeOf(t)
	c := overHTTP(t, address)
	for _, login := range []string{"jane", "gone"} {
		do(t, c, testkit.Request{Path: "/users/", Body: fmt.Appendf(nil, `{"loginName":%q,"fullName":"x","password":"changeit"}`, login),
			Header: map[string]string{"Content-Type": "application/json"}, Admin: true})
	}
	write(t, c, "closed", "t", "{}")
	describe(t, c, "closed", `{"$acl":{"$r":["jane","gone"]}}`)
	endsAlike(t, address, "gone", func() {
		do(t, c, testkit.Request{Method: "POST", Path: "/users/gone/command/disable", Admin: true})
	})
	endsAlike(t, address, "jane", func() { describe(t, c, "closed", `{"$acl":{"$r":"olga"}}`) })
}

// TestBoundsOfLongReads: an expression that takes too long ends a read over both.
func TestBoundsOfLongReads(t *testing.T) {
	address := nodeOf(t)
	c := overHTTP(t, address)
	write(t, c, "s", strings.Repeat("a", 60)+"b", "{}")
	answer := check.Value(c.Do(t.Context(), testkit.Request{Path: "/streams/$all/filtered?context=eventtype&type=regex&data=%5E(%3F%3Da)(a%2B)%2B%24", Admin: true})).Must(t)
	end := firstOf(t, dial(t, address), "admin", "streams.Streams/Read",
		strings.Replace(readOf(`"all":{"start":{}}`), `"noFilter":{}`, `"filter":{"eventType":{"regex":"^(?=a)(a+)+$"},"max":32}`, 1))
	check.Equal(t, answer.Status, 400, "over HTTP", string(answer.Body))
	check.Equal(t, end, "InvalidArgument: The regular expression of the filter takes too long.", "over gRPC")
}

// TestWrongLoginsAreLoggedAlike: of wrong credentials the log has a line each, over both
// interfaces, and no password.
func TestWrongLoginsAreLoggedAlike(t *testing.T) {
	var lines bytes.Buffer
	address, stop, err := onenode.StartLogged(t.Context(), hclog.New(&hclog.LoggerOptions{Output: &lines}),
		func(c *config.Config) { c.LogFailedAuthenticationAttempts = true })
	check.Must(t, err)
	answer := check.Value(overHTTP(t, address).Do(t.Context(), testkit.Request{Path: "/streams/s", User: "jane", Password: "secret"})).Must(t)
	check.Equal(t, answer.Status, 401)
	check.Contains(t, firstOf(t, dial(t, address), "joe:secret", "users.Users/Details", `{}`), "Unauthenticated")
	check.Must(t, stop())
	for _, login := range []string{"jane", "joe"} {
		check.Contains(t, lines.String(), "credentials were refused: login="+login)
	}
	check.Equal(t, strings.Contains(lines.String(), "secret"), false)
}
