package grpcapi_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/testkit/onenode"
)

// startNode starts a node and returns a connection to it.
func startNode(t testing.TB, set ...func(*config.Config)) *grpc.ClientConn {
	t.Helper()
	return dial(t, nodeOf(t, set...))
}

// nodeOf starts a node and returns its address.
func nodeOf(t testing.TB, set ...func(*config.Config)) string {
	t.Helper()
	address, stop, err := onenode.Start(context.Background(), set...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return address
}

// serve serves what a test makes up, and returns a connection to it.
func serve(t testing.TB, o grpcapi.Options) (*grpc.ClientConn, *grpcapi.Server) {
	t.Helper()
	s := grpcapi.New(o)
	return dial(t, listen(t, s)), s
}

// by makes calls those of a user: "login:password", or a login whose password is changeit; empty:
// no user's.
func by(ctx context.Context, who string) context.Context {
	if who == "" {
		return ctx
	}
	if !strings.Contains(who, ":") {
		who += ":changeit"
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(who)))
}

// methodOf finds a method, which is called as in "users.Users/Create".
func methodOf(t testing.TB, name string) (full string, m protoreflect.MethodDescriptor) {
	t.Helper()
	if full = name; !strings.HasPrefix(name, "kurrentdb.") && !strings.HasPrefix(name, "annals.") {
		full = "event_store.client." + name
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(full, "/", ".")))
	if err != nil {
		t.Fatal(err)
	}
	return "/" + full, d.(protoreflect.MethodDescriptor)
}

func newMessage(t testing.TB, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return m.New().Interface()
}

// invoke calls a method with a request that is written as JSON, and returns as text the messages of
// the answer and how the call ended: its code, with text and trailers if that is not OK.
func invoke(t *testing.T, conn *grpc.ClientConn, who, name, request string) string {
	t.Helper()
	return invokeWith(by(t.Context(), who), t, conn, name, request)
}

// invokeWith is invoke with the metadata of a context.
func invokeWith(ctx context.Context, t *testing.T, conn *grpc.ClientConn, name, request string) string {
	t.Helper()
	full, m := methodOf(t, name)
	in := newMessage(t, m.Input())
	if err := protojson.Unmarshal([]byte(request), in); err != nil {
		t.Fatal(err)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, full)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.SendMsg(in), stream.CloseSend()); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for {
		out := newMessage(t, m.Output())
		if err = stream.RecvMsg(out); err != nil {
			break
		}
		b.WriteString(textOf(t, out) + " ")
	}
	if errors.Is(err, io.EOF) {
		return b.String() + "OK"
	}
	return b.String() + ending(err, stream.Trailer())
}

// ending is how a call ended.
func ending(err error, trailer metadata.MD) string {
	// Of an answer that is nothing but trailers.
	for _, key := range []string{"content-length", "content-type", "date"} {
		trailer.Delete(key)
	}
	text := status.Code(err).String() + ": " + status.Convert(err).Message()
	if trailer.Len() > 0 {
		text += " " + strings.TrimPrefix(fmt.Sprint(map[string][]string(trailer)), "map")
	}
	return text
}

// textOf is a message as JSON without what differs from run to run.
func textOf(t *testing.T, m proto.Message) string {
	t.Helper()
	raw, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`"ticksSinceEpoch":"1\d{16}"`).ReplaceAllString(b.String(), `"ticksSinceEpoch":"TICKS"`)
	return regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).ReplaceAllString(text, "ID")
}

// post appends an event of the type t over HTTP.
func post(t *testing.T, conn *grpc.ClientConn, stream, data string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+strings.TrimPrefix(conn.Target(), "passthrough:///")+"/streams/"+stream, strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("admin", "changeit")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("ES-EventType", "t")
	r.Header.Set("ES-EventId", event.ID(uuid.New()).String())
	r.Close = true
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Body.Close(); err != nil || w.StatusCode != http.StatusCreated {
		t.Fatal(w.Status, err)
	}
}

// step is a call and what is to come of it.
type step struct{ who, method, request, want string }

// take makes calls one after another.
func take(t *testing.T, conn *grpc.ClientConn, steps []step) {
	t.Helper()
	for i, s := range steps {
		if got := invoke(t, conn, s.who, s.method, s.request); got != s.want {
			t.Errorf("%d: %s by %q of %s:\ngot  %s\nwant %s", i, s.method, s.who, s.request, got, s.want)
		}
	}
}

const denied = "PermissionDenied: Access Denied [exception:[access-denied]]"

// anyone accepts any login without a password, with the rights of the group that has its name.
type anyone struct{ standing }

func (anyone) Authenticate(r *http.Request) (access.Principal, error) {
	login, password, ok := r.BasicAuth()
	switch {
	case !ok:
		return access.Anonymous, nil
	case password != "changeit":
		return access.Anonymous, event.ErrNotAuthorized
	}
	return access.Principal{Login: login}, nil
}

func (anyone) CheckStream(context.Context, access.Principal, string, access.Right) error { return nil }

// memberCluster is a cluster in which this node has a role; it knows the leader unless that is
// empty.
type memberCluster struct{ role, leader string }

func (c memberCluster) Role() string                  { return c.role }
func (c memberCluster) Redirect() (string, bool)      { return c.leader, c.leader != "" }
func (c memberCluster) Confirm(context.Context) error { return nil }

var leader = memberCluster{role: "leader"}
