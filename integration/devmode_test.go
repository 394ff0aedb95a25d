package integration_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestDevMode: a node for development serves HTTPS with a certificate of an
// authority that it names, and asks for passwords. The authority stays with the data.
func TestDevMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var authority []byte
	for _, round := range []string{"first start", "second start"} {
		node := testkit.StartNode(t, dir, "--dev")
		line := node.AwaitLog("authority=")
		path := regexp.MustCompile(`authority="?([^" ]+)`).FindStringSubmatch(line)[1]
		if !filepath.IsAbs(path) {
			t.Errorf("%s: the path of the authority is printed as %s", round, path)
		}
		pem := check.Value(os.ReadFile(path)).Must(t)
		if authority != nil && string(pem) != string(authority) {
			t.Errorf("%s: another authority", round)
		}
		authority = pem
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			t.Fatalf("%s holds no certificate", path)
		}
		if !strings.HasPrefix(node.URL(), "https://") {
			t.Fatalf("%s: served at %s", round, node.URL())
		}
		for _, host := range []string{"localhost", "127.0.0.1"} {
			client := testkit.NewClient("https://"+host+":"+portOf(node.Host()), &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
			t.Cleanup(client.CloseIdle)
			for _, one := range []struct {
				r      testkit.Request
				status int
			}{
				{testkit.Request{Path: "/info"}, http.StatusOK},
				{testkit.Request{Path: "/health/ready"}, http.StatusNoContent},
				{testkit.Request{Path: "/streams/%24all"}, http.StatusUnauthorized},
				{testkit.Request{Path: "/streams/%24all", Admin: true}, http.StatusOK},
				{testkit.Request{Path: "/info", User: "admin", Password: "guess"}, http.StatusUnauthorized},
				{testkit.Request{Path: "/users/", Admin: true}, http.StatusOK},
				{withID(appendOf("developed", ""), 500_000), http.StatusCreated},
			} {
				must(t, client, one.r, one.status)
			}
			var view struct {
				Members []struct {
					Port       int `json:"internalTcpPort"`
					SecurePort int `json:"internalSecureTcpPort"`
				}
			}
			answer, err := client.Do(t.Context(), testkit.Request{Path: "/gossip", Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON}})
			if err != nil || json.Unmarshal(answer.Body, &view) != nil || len(view.Members) != 1 || view.Members[0].Port != 0 || view.Members[0].SecurePort == 0 {
				t.Errorf("%s: the node with TLS is shown as %s, %v", round, answer.Body, err)
			}
		}
		stranger := testkit.NewClient(node.URL(), &tls.Config{MinVersion: tls.VersionTLS12})
		t.Cleanup(stranger.CloseIdle)
		if answer, err := stranger.Do(t.Context(), testkit.Request{Path: "/info"}); err == nil {
			t.Errorf("%s: who does not know the authority was answered %s", round, answer)
		}
		plain := testkit.NewClient("http://"+node.Host(), nil)
		t.Cleanup(plain.CloseIdle)
		if answer, err := plain.Do(t.Context(), testkit.Request{Path: "/info"}); err == nil && answer.Status < 300 {
			t.Errorf("%s: plain HTTP was answered %s", round, answer)
		}
		node.Stop()
	}
}

// TestDevCluster: the command for a cluster gives its nodes the options of a node, from the command
// line and from the environment, and all of them are ready when it says where they serve.
func TestDevCluster(t *testing.T) {
	t.Parallel()
	dev := testkit.Launch(t, testkit.Command{
		Args: []string{"dev", "--port", "0", "-MaxAppendSize=2000", "--mem-db"}, Env: []string{"STORE_FOLLOWER_WRITES=Forward"},
	})
	dev.AwaitOutput("data are in memory")
	served := regexp.MustCompile(`(?m)^node\d serves (http://\S+)`).FindAllStringSubmatch(dev.Stdout(), -1)
	if len(served) != 3 {
		t.Fatalf("%d nodes\n%s", len(served), dev.Output())
	}
	for i, url := range served {
		client := testkit.NewClient(url[1], nil)
		t.Cleanup(client.CloseIdle)
		small := withID(appendOf("options", ""), i)
		large := withID(appendOf("options", ""), 100+i)
		large.Body = []byte(`{"n":"` + strings.Repeat("x", 3000) + `"}`)
		for _, one := range []struct {
			r      testkit.Request
			status int
		}{{testkit.Request{Path: "/health/ready"}, http.StatusNoContent}, {small, http.StatusCreated}, {large, http.StatusRequestEntityTooLarge}} {
			// A leader is replaced at any time on a busy machine.
			testkit.Eventually(t, settleLimit, func() error {
				if answer, err := client.Do(t.Context(), one.r); err != nil || answer.Status != one.status {
					return fmt.Errorf("node %d: %s, %v, want %d", i+1, answer, err, one.status)
				}
				return nil
			})
		}
		strangerIsRefused(t, client)
	}
	dev.Stop()
}

// strangerIsRefused says to a node's port between nodes what another node would say, without the
// proof that its user runs it. By that port one could write anything anywhere.
func strangerIsRefused(t *testing.T, client *testkit.Client) {
	t.Helper()
	answer := check.Value(client.Do(t.Context(), testkit.Request{Path: "/gossip"})).Must(t)
	var view struct {
		Members []struct {
			IP   string `json:"internalTcpIp"`
			Port int    `json:"internalTcpPort"`
		} `json:"members"`
	}
	if err := json.Unmarshal(answer.Body, &view); err != nil || len(view.Members) == 0 {
		t.Fatalf("%v: %s", err, answer)
	}
	for _, m := range view.Members {
		for kind := byte(1); kind <= 6; kind++ {
			c, err := net.Dial("tcp", net.JoinHostPort(m.IP, fmt.Sprint(m.Port)))
			check.Must(t, err)
			preamble := append([]byte("\xa9ANNALS\n\x01"), make([]byte, 39)...)
			preamble[9], preamble[47] = kind, 1
			answer := make([]byte, 10)
			if _, err = c.Write(preamble); err == nil {
				_, err = io.ReadFull(c, answer)
			}
			if err != nil || answer[9] != 11 {
				t.Errorf("a foreign connection of kind %d is answered %x, %v", kind, answer, err)
			}
			_ = c.Close()
		}
	}
}
