package node_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/gossip"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/serverfeatures"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/node"
)

// TestOnePort: HTTP/1.1, HTTP/2 and gRPC are served on one port at the same time, with TLS and
// without.
func TestOnePort(t *testing.T) {
	dir := t.TempDir()
	authority, err := certs.NewAuthority(certs.AuthorityOptions{Key: certs.ECDSAP256})
	check.Must(t, err)
	issued, err := authority.Issue(certs.Localhost)
	check.Must(t, err)
	check.Must(t, errors.Join(authority.Write(filepath.Join(dir, "roots"), false), issued.Write(dir, false)))
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate)
	plain, secured := options(filepath.Join(dir, "plain")), options(filepath.Join(dir, "secured"))
	plain.Config.MemDb, secured.Config.MemDb = true, true
	c := secured.Config
	c.CertificateFile, c.CertificatePrivateKeyFile = filepath.Join(dir, certs.NodeCertificateFile), filepath.Join(dir, certs.NodeKeyFile)
	c.TrustedRootCertificatesPath = filepath.Join(dir, "roots")
	for _, c := range []struct {
		name   string
		o      node.Options
		config *tls.Config
	}{
		{name: "plain", o: plain},
		{name: "TLS", o: secured, config: &tls.Config{RootCAs: roots, ServerName: "localhost"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := open(t, c.o)
			dialed := insecure.NewCredentials()
			if c.config != nil {
				dialed = credentials.NewTLS(c.config)
			}
			conn, err := grpc.NewClient("passthrough:///"+n.Addr(), grpc.WithTransportCredentials(dialed))
			check.Must(t, err)
			defer conn.Close()
			var wg sync.WaitGroup
			for _, protocol := range []int{1, 2} {
				wg.Go(func() { askHTTP(t, n, protocol, c.config) })
			}
			wg.Go(func() { askRPC(t.Context(), t, conn) })
			wg.Wait()
		})
	}
}

// askHTTP does some requests over HTTP of a version.
func askHTTP(t *testing.T, n *node.Node, version int, config *tls.Config) {
	transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: config.Clone()}
	transport.Protocols.SetHTTP1(version == 1)
	transport.Protocols.SetHTTP2(version == 2)
	transport.Protocols.SetUnencryptedHTTP2(version == 2 && config == nil)
	defer transport.CloseIdleConnections()
	for range 20 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.URL()+"/gossip", nil)
		if err != nil {
			t.Error(err)
			return
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Error(err)
			return
		}
		if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK || answer.ProtoMajor != version {
			t.Errorf("HTTP/%d: %s over %s, %v", version, answer.Status, answer.Proto, err)
		}
	}
}

// askRPC does some calls.
func askRPC(ctx context.Context, t *testing.T, conn *grpc.ClientConn) {
	features, view := serverfeatures.NewServerFeaturesClient(conn), gossip.NewGossipClient(conn)
	for range 20 {
		methods, err := features.GetSupportedMethods(ctx, &shared.Empty{}, grpc.UseCompressor(gzip.Name))
		if err != nil {
			t.Error(err)
			return
		}
		if methods.EventStoreServerVersion != "23.10.0" || len(methods.Methods) == 0 {
			t.Errorf("features: %v", methods)
		}
		members, err := view.Read(ctx, &shared.Empty{})
		if err != nil {
			t.Error(err)
			return
		}
		if m := members.Members; len(m) != 1 || m[0].State != gossip.MemberInfo_Leader || !m[0].IsAlive || m[0].HttpEndPoint.GetPort() == 0 {
			t.Errorf("gossip: %v", members)
		}
	}
	wrong := metadata.AppendToOutgoingContext(ctx, "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("admin:wrong")))
	var trailer metadata.MD
	_, err := features.GetSupportedMethods(wrong, &shared.Empty{}, grpc.Trailer(&trailer))
	if got := status.Convert(err); got.Code() != codes.Unauthenticated || got.Message() != "Unauthenticated" || trailer.Get("content-length") != nil {
		t.Errorf("wrong credentials: %v, %v", err, trailer)
	}
	err = conn.Invoke(ctx, "/event_store.client.streams.Streams/read", &shared.Empty{}, &shared.Empty{})
	check.Equal(t, status.Code(err), codes.Unimplemented, "a method that is not there", err)
}
