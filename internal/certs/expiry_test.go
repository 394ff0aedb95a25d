package certs_test

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/check"
)

// A node that serves refuses what would have the others refuse it; one that starts warns.
func TestReloadRefusesIsolation(t *testing.T) {
	root := newAuthority(t, nil, "root")
	cases := []struct {
		name  string
		node  *pair
		hosts []string
		want  []string
	}{
		{"no node dials it", root.node(t), nil, nil},
		{"named", root.node(t), []string{"localhost"}, nil},
		{"named by address", root.node(t), []string{"127.0.0.1"}, nil},
		{"named by the cluster's name", root.node(t, forHosts([]string{"db.example.com"})), []string{"10.0.0.1", "db.example.com"}, nil},
		{"wildcard", root.node(t, forHosts([]string{"*.example.com"})), []string{"n1.example.com"}, nil},
		{"another", root.node(t), []string{"10.0.0.1"}, []string{
			"DIR/node.crt: was not issued for 10.0.0.1, at which other nodes dial this one, but for localhost, 127.0.0.1 " +
				"(have it issued with 10.0.0.1 as alternative name, or set ReplicationHostAdvertiseAs to a name that it has)"}},
		{"neither host nor cluster", root.node(t, forHosts(nil, net.IPv4(10, 0, 0, 2))), []string{"10.0.0.1", "db.example.com"}, []string{
			"DIR/node.crt: was not issued for 10.0.0.1 or db.example.com, at which other nodes dial this one, but for 10.0.0.2 " +
				"(have it issued with 10.0.0.1 as alternative name, or set ReplicationHostAdvertiseAs to a name that it has)"}},
		{"no alternative name", root.node(t, forHosts(nil)), nil, []string{
			"DIR/node.crt: has neither a DNS name nor an IP address as alternative name, so other nodes do not accept it " +
				"(have it issued with the node's names and addresses as alternative names)"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newFolder(t)
			f := d.files(c.node, root)
			f.Hosts = c.hosts
			var warnings, errors []string
			for _, w := range c.want {
				warnings, errors = append(warnings, "warning "+w), append(errors, "error "+w)
			}
			set, err := certs.Load(f)
			check.Must(t, err, "started with")
			check.Slice(t, d.lines(set.Warnings), warnings, "started with")
			set, err = certs.Reload(f)
			check.MustEqual(t, err == nil, len(errors) == 0, "reloaded", err)
			if err != nil && !slices.Equal(d.lines(err.(*certs.LoadError).Findings), errors) || err == nil && len(set.Warnings) > 0 {
				t.Errorf("reloaded with %v", err)
			}
		})
	}
}

// What a Set says of its end is said from 30 days before, by the end that comes first.
func TestExpiring(t *testing.T) {
	root := newAuthority(t, nil, "root", valid(-time.Hour, 100*hours24))
	between := newAuthority(t, root, "between", valid(-time.Hour, 80*hours24))
	d := newFolder(t)
	short, long := load(t, d.files(between.node(t, valid(-time.Hour, 60*hours24)), root, between)), load(t, d.files(between.node(t, valid(-time.Hour, 90*hours24)), root, between))
	begun := time.Now()
	at := func(days int) string { return begun.AddDate(0, 0, days).UTC().Format("2006-01-02 15:04 UTC") }
	const renew, authority = " (renew the certificate)", " (renew the authority, then the certificates it issued)"
	cases := []struct {
		name string
		set  *certs.Set
		days int
		want []string
	}{
		{"long before", short, 29, []string{}},
		{"30 days before", short, 30, []string{"warning DIR/node.crt: expires on " + at(60) + renew}},
		{"after", short, 61, []string{"error DIR/node.crt: expired on " + at(60) + renew}},
		{"authority long before", long, 49, []string{}},
		{"authority first", long, 51, []string{`warning DIR/node.crt: the authority "CN=between" above it expires on ` + at(80) + authority}},
		{"both", long, 61, []string{"warning DIR/node.crt: expires on " + at(90) + renew, `warning DIR/node.crt: the authority "CN=between" above it expires on ` + at(80) + authority}},
		{"authority over", long, 81, []string{"warning DIR/node.crt: expires on " + at(90) + renew, `error DIR/node.crt: the authority "CN=between" above it expired on ` + at(80) + authority}},
	}
	for _, c := range cases {
		check.Slice(t, d.lines(c.set.Expiring(begun.AddDate(0, 0, c.days).Add(time.Minute))), c.want, c.name)
	}
	if node, above := short.NodeExpires(), short.AuthorityExpires(); !node.Equal(short.Expires) || !above.Equal(between.c.NotAfter) {
		t.Errorf("the node's ends %s, what is above it %s", node, above)
	}
	temporary, err := certs.Temporary()
	if err != nil || temporary.Expiring(begun) != nil {
		t.Errorf("a temporary one: %v, %v", temporary.Expiring(begun), err)
	}
}
