package node

import (
	"context"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// noted is a service that notes what becomes of it.
type noted struct{ log []string }

func (n *noted) Start(context.Context) { n.log = append(n.log, "start") }
func (n *noted) Stop()                 { n.log = append(n.log, "stop") }

func TestLeading(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var s noted
	l := leading{services: []service{&s}}
	lead := func(term uint64) { l.set(ctx, func() { l.wanted = term }) }
	expect := func(what string, want ...string) {
		t.Helper()
		check.Slice(t, s.log, want, what)
		s.log = nil
	}
	lead(0)
	expect("never led")
	lead(3)
	lead(3)
	expect("leads", "start")
	lead(5)
	expect("leads again, and something may have been missed in between", "stop", "start")
	first, second := l.rest(ctx), l.rest(ctx)
	expect("rests", "stop")
	first()
	lead(6)
	expect("still rests")
	second()
	expect("goes on", "start")
	again := l.rest(ctx)
	lead(0)
	again()
	expect("does not lead any more", "stop")
	lead(7)
	cancel()
	lead(8)
	expect("closes", "start", "stop")
}
