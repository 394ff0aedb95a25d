package serve

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/annalsdb/annals/internal/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dialled is a listener in memory.
type dialled struct{ conns chan net.Conn }

func (d *dialled) Accept() (net.Conn, error) {
	if c, ok := <-d.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (d *dialled) Close() error   { close(d.conns); return nil }
func (d *dialled) Addr() net.Addr { return &net.TCPAddr{} }

// A connection that was opened ahead of any request, as clients do, holds nothing
// up: net/http would wait five seconds for it.
func TestSilentConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &dialled{make(chan net.Conn)}
		s := New(l, hclog.NewNullLogger())
		s.Serve(nil, nil)
		client, server := net.Pipe()
		l.conns <- server
		synctest.Wait()
		begun := time.Now()
		check.NoError(t, s.Close())
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the end took %s", took)
		}
		check.NoError(t, client.Close())
	})
}
