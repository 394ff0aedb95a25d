package lab_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/lab"
)

// BenchmarkThroughput sends a lot over one TCP connection.
func BenchmarkThroughput(b *testing.B) {
	const size = 256 << 20
	l := newLab(b, lab.Options{Hosts: 2})
	c := serveAll(b, l)
	to := l.Host(1)
	b.Run("client to host", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			check.Must(b, check.Err(push(to.Addr(), size)))
		}
	})
	b.Run("host to host", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			c[0].must(b, "push %s %d", to.Addr(), size)
		}
	})
	b.Run("host to host, 1 ms", func(b *testing.B) {
		do(b, l.Link(l.Host(0), to).Set(lab.Rule{Delay: time.Millisecond}))
		b.SetBytes(size)
		for b.Loop() {
			c[0].must(b, "push %s %d", to.Addr(), size)
		}
		do(b, l.HealAll())
	})
}

// BenchmarkRoundTrip asks and waits for the answer.
func BenchmarkRoundTrip(b *testing.B) {
	c := serveAll(b, newLab(b, lab.Options{Hosts: 1}))[0]
	for b.Loop() {
		c.must(b, "hello")
	}
}

// BenchmarkNew makes a lab and closes it.
func BenchmarkNew(b *testing.B) {
	for _, hosts := range []int{3, 9} {
		b.Run(fmt.Sprintf("%d hosts", hosts), func(b *testing.B) {
			for b.Loop() {
				l := check.Value(lab.New(lab.Options{Hosts: hosts})).Must(b)
				do(b, l.Close())
			}
		})
	}
}
