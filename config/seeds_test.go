package config_test

import (
	"slices"
	"testing"
)

// TestSeeds are the ports between nodes that a configuration names, whatever version it was written
// for.
func TestSeeds(t *testing.T) {
	for name, c := range map[string]struct {
		args    []string
		seeds   []string
		dnsPort int
	}{
		"as named":                   {[]string{"--gossip-seed", "a:1112,b:7"}, []string{"a:1112", "b:7"}, 1112},
		"port of gossip":             {[]string{"--gossip-seed", "a:1114,[::1]:1114"}, []string{"a:1112", "[::1]:1112"}, 1112},
		"port of gossip, given":      {[]string{"--gossip-seed", "a:5,b:1114", "--gossip-port", "5", "--replication-port", "9"}, []string{"a:9", "b:1114"}, 9},
		"behind a translation":       {[]string{"--gossip-seed", "a:1114", "--replication-tcp-port-advertise-as", "99"}, []string{"a:99"}, 99},
		"port of gossip by DNS":      {[]string{"--cluster-dns", "x", "--cluster-gossip-port", "1114"}, []string{}, 1112},
		"port between nodes, by DNS": {[]string{"--cluster-dns", "x", "--cluster-gossip-port", "44"}, []string{}, 44},
	} {
		t.Run(name, func(t *testing.T) {
			got := mustLoad(t, input{args: append(c.args, "--cluster-size", "3")})
			if seeds := got.Seeds(); !slices.Equal(seeds, c.seeds) || got.DNSPort() != c.dnsPort {
				t.Errorf("%q, %d by DNS", seeds, got.DNSPort())
			}
		})
	}
}
