package node_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/testkit/onenode"
)

// BenchmarkWaiters measures what a node does from an append until a thousand requests have their
// answers that waited for it. The client is as cheap as can be: one
// goroutine, which reads one answer after the other.
func BenchmarkWaiters(b *testing.B) {
	address, stop, err := onenode.Start(b.Context())
	address = strings.TrimPrefix(address, "http://")
	check.Must(b, err)
	defer func() { check.NoError(b, stop()) }()
	send := func(stream, data string) (position int64) {
		r := check.Value(http.NewRequestWithContext(b.Context(), http.MethodPost, "http://"+address+"/streams/"+stream, strings.NewReader(data))).Must(b)
		r.Header = http.Header{"Content-Type": {"application/json"}, "Es-Eventtype": {"t"}, "Es-Eventid": {uuid.NewString()}}
		r.SetBasicAuth("admin", "changeit")
		answer := check.Value(http.DefaultClient.Do(r)).Must(b)
		check.Must(b, answer.Body.Close())
		check.MustEqual(b, answer.StatusCode, http.StatusCreated, "status")
		check.Value(fmt.Sscan(answer.Header.Get("ES-Position"), &position)).Must(b)
		return position
	}
	held := func() string {
		r := check.Value(http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+address+"/metrics", nil)).Must(b)
		r.SetBasicAuth("admin", "changeit")
		answer := check.Value(http.DefaultClient.Do(r)).Must(b)
		text := string(check.Value(io.ReadAll(answer.Body)).Must(b))
		check.Must(b, answer.Body.Close())
		_, n, _ := strings.Cut(text, `annals_shares_held{kind="wait"} `)
		n, _, _ = strings.Cut(n, "\n")
		return n
	}
	send("s", "{}")
	data := `"` + strings.Repeat("x", 20_000) + `"`
	end := send("s", data)
	conns := make([]net.Conn, 1000)
	for i := range conns {
		conns[i] = check.Value(net.Dial("tcp", address)).Must(b)
		defer conns[i].Close()
	}
	answer := make([]byte, 4096)
	var took, cpu, append time.Duration
	for b.Loop() {
		for _, c := range conns {
			check.Value(fmt.Fprintf(c, "GET /streams/s/0 HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\nES-WaitFor: %d\r\nES-WaitAtMost: 60s\r\n\r\n", end+30_000)).Must(b)
		}
		testkit.Eventually(b, time.Minute, func() error {
			if n := held(); n != fmt.Sprint(len(conns)) {
				return fmt.Errorf("%s wait", n)
			}
			return nil
		})
		before, used := time.Now(), processorTime()
		end = send("s", data)
		append += time.Since(before)
		for _, c := range conns {
			n := 0
			for !bytes.HasSuffix(answer[:n], []byte("\r\n\r\n{}")) {
				n += check.Value(c.Read(answer[n:])).Must(b)
			}
			check.Equal(b, bytes.HasPrefix(answer, []byte("HTTP/1.1 200")), true, "status")
		}
		took += time.Since(before)
		cpu += processorTime() - used
	}
	b.ReportMetric(float64(append.Microseconds())/1e3/float64(b.N), "append-ms")
	b.ReportMetric(float64(took.Microseconds())/1e3/float64(b.N), "last-ms")
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N)/float64(len(conns)), "cpu-µs/waiter")
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
