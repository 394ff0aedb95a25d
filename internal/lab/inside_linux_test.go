package lab

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/internal/check"
)

// ClientAddr is the address by which the hosts see this process.
func (l *Lab) ClientAddr() string {
	if l.network == nil {
		return "127.0.0.1"
	}
	return address(l.subnet, clientNumber).String()
}

func TestTail(t *testing.T) {
	cases := []struct {
		name   string
		writes []string
		want   string
	}{
		{"nothing", nil, ""},
		{"less", []string{"abc"}, "abc"},
		{"all", []string{"abc", "de"}, "abcde"},
		{"more", []string{"abc", "def"}, "bcdef"},
		{"more at once", []string{"a", "bcdefghi"}, "efghi"},
		{"more than twice", []string{"abc", "defgh", "ij", "k"}, "ghijk"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tail := newTail(5)
			for _, w := range c.writes {
				if n, err := tail.Write([]byte(w)); n != len(w) || err != nil {
					t.Errorf("wrote %d bytes of %q, %v", n, w, err)
				}
			}
			check.Equal(t, tail.String(), c.want, "kept")
		})
	}
}

func TestOwnerDead(t *testing.T) {
	const nobody = 1 << 30 // more than any system counts
	cases := map[string]bool{
		namePrefix + strconv.Itoa(os.Getpid()) + "-0badcafe": false,
		namePrefix + strconv.Itoa(nobody) + "-0badcafe":      true,
		namePrefix + strconv.Itoa(nobody):                    false,
		namePrefix + "-1-0":                                  false,
		namePrefix + "0-0":                                   false,
		namePrefix + "x-0":                                   false,
		"another-" + strconv.Itoa(nobody) + "-0":             false,
	}
	for name, want := range cases {
		check.Equal(t, ownerDead(name), want, name)
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{`/a\040b\134c`: `/a b\c`, `/a\`: `/a\`, `/a\04`: `/a\04`, `/a\999`: `/a\999`, "/a": "/a"} {
		check.Equal(t, unescape(in), want, in)
	}
}

// TestQueuesAreBounded floods a link that hands nothing over, all at one moment: as
// time passes a limited bandwidth takes more.
func TestQueuesAreBounded(t *testing.T) {
	cases := []struct {
		name        string
		size, count int
		rule        Rule
		waiting     int // packets that wait at the end; the others are dropped
	}{
		{"packets", headerSize + 20, maxWaitingPackets + 10, Rule{Delay: maxQueueing * 10000}, maxWaitingPackets},
		{"bytes", headerSize + mtu, 2 * maxWaitingBytes / mtu, Rule{Delay: maxQueueing * 10000}, maxWaitingBytes / (headerSize + mtu)},
		// A packet takes a tenth of the time that packets may queue, and one more is begun.
		{"bandwidth", headerSize + 1000, 100, Rule{Delay: maxQueueing * 10000, BytesPerSecond: 40000}, 11},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{stop: make(chan struct{})}
				l := newLink(n, nil, 0, 0)
				l.set(c.rule)
				packet := []byte(strings.Repeat("x", c.size))
				for range c.count {
					l.forward(packet)
				}
				close(n.stop)
				n.running.Wait()
				if got := len(l.waiting); got != c.waiting || int(l.dropped.Load()) != c.count-c.waiting {
					t.Errorf("%d packets wait, %d are dropped", got, l.dropped.Load())
				}
			})
		})
	}
}
