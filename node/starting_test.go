package node_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/node"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// ofTheMoment is what differs each time: ports, times and what counts them.
var ofTheMoment = regexp.MustCompile(`127\.0\.0\.1:\d\d+|"(httpEndPointPort|serverPort|[a-zA-Z]*Port)": ?\d+|\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// TestStarting: what a node answers as long as its log is being opened.
func TestStarting(t *testing.T) {
	cases := []struct {
		name string
		set  func(*config.Config)
	}{
		{"alone", func(*config.Config) {}},
		{"insecure", func(c *config.Config) { c.Insecure = true }},
		{"one of three", func(c *config.Config) {
			c.Insecure, c.ClusterSize, c.ReplicationPort, c.GossipSeed, c.NodePriority = true, 3, 0, []string{"127.0.0.1:1"}, 7
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := options(t.TempDir())
			first := open(t, o)
			if status, body := write(t, first, "s", 0); status != 201 {
				t.Fatalf("%d %s", status, body)
			}
			check.Must(t, first.Close())
			c.set(o.Config)
			address := freeAddress(t)
			o.Config.NodePort = port(t, address)
			disk := newHangingDisk(vfs.OpOpen)
			o.FS = disk
			goOn := disk.hang()
			opened := make(chan error, 1)
			go func() {
				n, err := node.Open(context.Background(), o)
				if err == nil {
					err = n.Close()
				}
				opened <- err
			}()
			testkit.Eventually(t, time.Minute, func() error {
				text, err := answer(t, address, "GET /health/startup")
				if err == nil && !strings.Contains(text, "reading the log") {
					err = errors.New(text)
				}
				return err
			})
			var got strings.Builder
			for question := range strings.SplitSeq(strings.TrimSpace(startingQuestions), "\n") {
				text := check.Value(answer(t, address, question)).Must(t)
				fmt.Fprintf(&got, "%s: %s\n", question, ofTheMoment.ReplaceAllString(text, "…"))
			}
			goOn()
			check.NoError(t, <-opened)
			file := filepath.Join("testdata", "starting", strings.ReplaceAll(c.name, " ", "-")+".txt")
			if *update {
				check.Must(t, os.WriteFile(file, []byte(got.String()), 0o600))
			}
			want := check.Value(os.ReadFile(file)).Must(t)
			check.Equal(t, got.String(), string(want))
		})
	}
}

const startingQuestions = `
GET /health/live
GET /health/ready
GET /health/startup
GET /ping
GET /info
GET /gossip
GET /streams/s
POST /streams/s
GET /users/admin
GET /stats/es/writer/queuedFlushMessages
GET /stats/replication
GET /admin/cluster/members
POST /admin/node/resign
POST /admin/node/priority/1
POST /admin/cluster/members
DELETE /admin/cluster/members/127.0.0.1:2
POST /admin/mergeindexes
POST /admin/scavenge
GET /admin/scavenge/current
POST /admin/backup/sessions
GET /subscriptions
GET /projections/any
`

func freeAddress(t *testing.T) string {
	t.Helper()
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func port(t *testing.T, address string) int {
	t.Helper()
	_, text, _ := net.SplitHostPort(address)
	number := check.Value(strconv.Atoi(text)).Must(t)
	return number
}

// answer returns status and text of an answer, without what is of the moment.
func answer(t *testing.T, address, question string) (string, error) {
	t.Helper()
	method, path, _ := strings.Cut(question, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(`{"node":"127.0.0.1:2"}`))
	check.Must(t, err)
	r.Close = true
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("ES-EventType", "t")
	r.Header.Set("Accept", "application/json")
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return answer.Status + " " + string(body), err
}
