package serve

import (
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/check"
)

// The end does not wait for a client whose answer, begun before, is finished, nor for one that sent
// half a header.
func TestEndIsPrompt(t *testing.T) {
	for _, c := range []struct{ name, sent string }{
		{"answer that went on", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		{"half a header", "GET / HTTP/1.1\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &dialled{make(chan net.Conn)}
				s := New(l, hclog.NewNullLogger())
				drain := make(chan struct{})
				s.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_ = http.NewResponseController(w).Flush()
					<-drain
				}), nil)
				client, server := net.Pipe()
				l.conns <- server
				go func() { _, _ = io.Copy(io.Discard, client) }()
				check.Must(t, check.Err(io.WriteString(client, c.sent)))
				time.Sleep(time.Second)
				begun := time.Now()
				time.AfterFunc(10*time.Millisecond, func() { close(drain) })
				check.NoError(t, s.Close())
				if took := time.Since(begun); took > time.Second {
					t.Errorf("the end took %s", took)
				}
				_ = client.Close()
				synctest.Wait()
			})
		})
	}
}
