package integration_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// fewDescriptors is the limit of the nodes of these tests.
const fewDescriptors = "256"

// TestLongFewDescriptors: a node whose process may open 256 files works while a client opens all
// connections it gets, which it keeps. With a bound of its own on connections their place is
// bounded; with one that is too high files and connections fight for descriptors, and files win.
func TestLongFewDescriptors(t *testing.T) {
	for name, options := range map[string][]string{
		"bounded by the limit": nil,
		"bounded too high":     {"--max-connections", "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			node := startFew(t, dir, options...)
			load := startLoad(t, node, seed(t), 4, 6)
			load.more(t, 20)
			crowd := startSilentCrowd(t, node)
			load.more(t, 150)
			check.NoError(t, askOperator(t.Context(), node, http.MethodPost, "/admin/scavenge?threshold=-1"))
			backup := beginSession(t, node)
			copied := filepath.Join(t.TempDir(), "copy")
			backup.fetch(t, node, copied)
			backup.end(t, node)
			check.NoError(t, askOperator(t.Context(), node, http.MethodPost, "/admin/mergeindexes"))
			load.more(t, 100)
			crowd()
			load.finish(t)
			load.ledger.checkNode(t, node)
			node.Stop()
			verifyClean(t, dir)
			verifyClean(t, copied)
			node = startFew(t, dir, options...)
			load.ledger.checkNode(t, node)
			node.Stop()
		})
	}
}

// startFew starts a node with few descriptors.
func startFew(t *testing.T, dir string, options ...string) *testkit.Process {
	t.Helper()
	args := slices.Concat([]string{"-c", `ulimit -n ` + fewDescriptors + ` && exec "$@"`, "sh", testkit.Binary(t), "node", "--db", dir, "--node-port", "0"},
		smallTables, options)
	p := testkit.Launch(t, testkit.Command{Path: "/bin/sh", Args: args})
	p.AwaitServing()
	return p
}

// askOperator asks for something once, again where the connection had to give way.
func askOperator(ctx context.Context, node *testkit.Process, method, path string) (err error) {
	for range 50 {
		var answer testkit.Response
		answer, err = node.Do(ctx, testkit.Request{Method: method, Path: path, Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON}})
		if err == nil && answer.Status == http.StatusOK {
			return nil
		}
		if err == nil {
			return errors.New(answer.String())
		}
	}
	return err
}

// startSilentCrowd opens 300 connections from an address of its own, a third each with a long poll,
// a live tail and nothing, and a new one for each that the node ends. stop ends them.
func startSilentCrowd(t *testing.T, node *testkit.Process) (stop func()) {
	t.Helper()
	requests := []string{
		"GET /streams/none/1/forward/20 HTTP/1.1\r\nHost: x\r\nES-LongPoll: 3600\r\n\r\n",
		"GET /streams/none HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n",
		"",
	}
	ctx, cancel := context.WithCancel(t.Context())
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	address := strings.TrimPrefix(node.URL(), "http://")
	var owned sync.WaitGroup
	for i := range 300 {
		owned.Go(func() {
			for ctx.Err() == nil {
				c, err := dialer.DialContext(ctx, "tcp", address)
				if err != nil {
					continue
				}
				release := context.AfterFunc(ctx, func() { _ = c.Close() })
				if _, err := io.WriteString(c, requests[i%len(requests)]); err == nil {
					_, _ = io.Copy(io.Discard, c)
				}
				release()
				_ = c.Close()
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond): // Others have the processors too.
				}
			}
		})
	}
	return func() {
		cancel()
		owned.Wait()
	}
}
