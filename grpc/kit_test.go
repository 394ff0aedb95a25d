package grpcapi_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/http1"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/testkit/onenode"
)

// address is that of a node that all tests share.
var address string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		a, stop, err := onenode.Start(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		address = a
		code := m.Run()
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		// The clock of slow expressions stops a while after the last one.
		if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock")); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// dial connects to a node at an address like http://127.0.0.1:2113.
func dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(address, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// listen lets a server take connections, as a node does, and returns their address.
func listen(t testing.TB, s *grpcapi.Server) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	others := &http.Server{Handler: s.Handler(http.NotFoundHandler()), Protocols: new(http.Protocols),
		ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: grpcapi.DefaultMaxHeaderBytes}
	others.Protocols.SetHTTP1(true)
	others.Protocols.SetUnencryptedHTTP2(true)
	h := http1.New(others)
	h.Calls = s.Serve
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	t.Cleanup(func() {
		grpcapi.CutOff(s)
		s.Close()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// byHand makes a call by hand, and returns its code.
func byHand(t testing.TB, address, method string, body io.Reader, header http.Header) codes.Code {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+method, body)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	r.Header.Set("Content-Type", "application/grpc")
	answer, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		t.Fatal(err)
	}
	code, err := strconv.Atoi(cmp.Or(answer.Trailer.Get("Grpc-Status"), answer.Header.Get("Grpc-Status")))
	if err != nil {
		t.Fatalf("%v, %v", answer.Header, answer.Trailer)
	}
	return codes.Code(code)
}

// allEnded waits until no call is open.
func allEnded(t testing.TB, s *grpcapi.Server) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := grpcapi.OpenCalls(s); n > 0 {
			return fmt.Errorf("%d calls are open", n)
		}
		return nil
	})
}

// newNode starts a node of a test's own, and returns its address.
func newNode(t testing.TB) string {
	t.Helper()
	address, stop, err := onenode.Start(t.Context())
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

// overHTTP is a node's other interface.
func overHTTP(t testing.TB, address string) *testkit.Client {
	c := testkit.NewClient(address, nil)
	t.Cleanup(c.CloseIdle)
	return c
}

// as is a context for calls of a user; without a login the caller is anonymous. Calls end after a
// while.
func as(t testing.TB, login string) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	if login == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(login+":changeit")))
}

// ended is how a call ended, as a client sees it.
type ended struct {
	code     codes.Code
	text     string
	trailers string // "key=value" of those that name the error, in the order of their keys
}

// endOf returns how a call ended.
func endOf(err error, trailers metadata.MD) ended {
	e := ended{code: status.Code(err), text: status.Convert(err).Message()}
	for _, key := range []string{"exception", "group-name", "leader-endpoint-host", "leader-endpoint-port", "reason", "stream-name"} {
		for _, value := range trailers.Get(key) {
			e.trailers += key + "=" + value + ";"
		}
	}
	return e
}
