package client_test

import (
	"cmp"
	"flag"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/annalsdb/annals/client"
)

// address is that of a node for the examples. Those who run them say it.
var address = os.Getenv("ANNALS_CLIENT_NODE")

// TestMain leaves out the examples where there is no node for them.
func TestMain(m *testing.M) {
	flag.Parse()
	if address == "" {
		skip := flag.Lookup("test.skip")
		all := "^Example"
		if given := skip.Value.String(); given != "" {
			all = strings.Join([]string{given, all}, "|")
		}
		if err := skip.Value.Set(all); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// connect returns a client for the examples.
func connect() *client.Client {
	c, err := client.New(client.Options{
		Nodes: []string{cmp.Or(address, "http://127.0.0.1:2113")}, Login: url.UserPassword("admin", "changeit"),
	})
	if err != nil {
		panic(err)
	}
	return c
}
