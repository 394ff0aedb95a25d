package integration_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestShutdownUnderLoad: every write acknowledged before and while the node stops is there
// afterwards, and the restart has nothing to repair.
func TestShutdownUnderLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := testkit.StartNode(t, dir, "--max-mem-table-size", "300")
	poll := startLongPoll(t, node, "nobody-writes-this", 60)
	load := startLoad(t, node, seed(t), 32, 8)
	load.more(t, 500)

	begun := time.Now()
	node.Signal(syscall.SIGTERM)
	if code := node.Wait(settleLimit); code != 0 {
		t.Fatalf("exit code %d\n%s", code, node.Output())
	}
	t.Logf("stopped within %s", time.Since(begun).Round(time.Millisecond))
	answer := poll.answer(t, settleLimit)
	if answer.err == nil && answer.status != http.StatusOK && answer.status != http.StatusNotFound {
		t.Errorf("the long poll got %d", answer.status)
	}
	if line := "requests still in flight are cut off"; strings.Contains(node.Stderr(), line) {
		t.Error(line)
	}

	begun = time.Now()
	next := testkit.StartNode(t, dir, "--max-mem-table-size", "300")
	t.Logf("started within %s", time.Since(begun).Round(time.Millisecond))
	for _, sign := range []string{"cutting", "rebuilt", "removing"} {
		if log := next.Stderr(); strings.Contains(log, sign) {
			t.Errorf("the start after an orderly end had something to repair (%q):\n%s", sign, log)
		}
	}
	load.ledger.checkNode(t, next)
	load.serve(next)
	load.finish(t)
	load.ledger.checkNode(t, next)
	next.Stop()
	verifyClean(t, dir)
}

// TestSecondSignal ends a node at once that waits for a request in flight.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := testkit.StartNode(t, dir)
	mustAppend(t, node, "kept", -1, 3)
	upload := startUpload(t, node)
	defer upload.close()
	node.Signal(syscall.SIGTERM)
	node.AwaitLog("stopping")
	node.Signal(syscall.SIGTERM)
	// Had it cut the request off by itself, that would be an orderly end.
	check.Equal(t, node.Wait(settleLimit), 1, "exit code")
	if got := complaints(node); len(got) != 1 || !strings.Contains(got[0], "second signal") {
		t.Errorf("complaints: %q", got)
	}
	next := testkit.StartNode(t, dir)
	if entries, err := next.ReadStream(t.Context(), "kept", 0); err != nil || len(entries) != 3 {
		t.Errorf("%d events, %v", len(entries), err)
	}
	next.Stop()
}

// TestLongShutdownWithStuckUpload: a client that never ends its request delays the end, but does
// not prevent it.
func TestLongShutdownWithStuckUpload(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a time limit of the node")
	}
	t.Parallel()
	node := testkit.StartNode(t, t.TempDir())
	upload := startUpload(t, node)
	defer upload.close()
	node.Signal(syscall.SIGTERM)
	if code := node.Wait(settleLimit); code != 0 {
		t.Errorf("exit code %d\n%s", code, node.Output())
	}
}

// upload is an append whose body never ends.
type upload struct {
	t    *testing.T
	conn net.Conn
}

// startUpload returns when the node is reading the body.
func startUpload(t *testing.T, node *testkit.Process) *upload {
	t.Helper()
	conn, err := net.Dial("tcp", node.Host())
	check.Must(t, err)
	u := &upload{t: t, conn: conn}
	check.Must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprintf(conn, "POST /streams/stuck HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", node.Host(), testkit.MediaEvents)
	check.Must(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	check.Must(t, err, "the node does not ask for the body")
	check.MustContain(t, line, " 100 ", "the node does not ask for the body")
	check.Must(t, check.Err(io.WriteString(conn, "[")))
	return u
}

func (u *upload) close() {
	check.NoError(u.t, u.conn.Close())
}

// complaints are the lines by which the command tells why it ends.
func complaints(p *testkit.Process) []string {
	var found []string
	for line := range strings.SplitSeq(p.Stderr(), "\n") {
		if strings.HasPrefix(line, "annals: ") {
			found = append(found, line)
		}
	}
	return found
}
