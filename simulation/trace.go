package simulation

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// keptLines bounds what is kept of each host, and longestLine each line, in bytes.
	keptLines   = 300
	longestLine = 500
)

// trace keeps the last events of every host, in virtual time. Any goroutine may call its methods.
type trace struct {
	start time.Time

	mu    sync.Mutex
	count int
	hosts map[string][]traced
}

type traced struct {
	order int // among all
	at    time.Duration
	text  string
}

func newTrace() *trace { return &trace{start: time.Now(), hosts: map[string][]traced{}} }

func (t *trace) add(host, text string) {
	at := time.Since(t.start)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	list := append(t.hosts[host], traced{t.count, at, text[:min(len(text), longestLine)]})
	if len(list) >= 2*keptLines {
		list = slices.Delete(list, 0, len(list)-keptLines)
	}
	t.hosts[host] = list
}

// lines takes the log of a node, without the lines of the lowest level.
type lines struct {
	trace *trace
	host  string
	gate  *gate
}

func (l lines) Write(p []byte) (int, error) {
	if l.gate.failed.Load() && bytes.Contains(p, []byte("entering candidate state")) {
		l.gate.lose("run") // It would store a term next.
	}
	if bytes.HasPrefix(p, []byte("[DEBUG]")) {
		return len(p), nil
	}
	l.trace.add(l.host, strings.TrimSpace(string(p)))
	return len(p), nil
}

// tail returns the last lines of a host.
func (t *trace) tail(host string, count int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.hosts[host]
	var b strings.Builder
	for _, one := range list[max(0, len(list)-count):] {
		fmt.Fprintf(&b, "%12.6f %s\n", one.at.Seconds(), one.text)
	}
	return b.String()
}

// String returns the last events of all hosts, in order.
func (t *trace) String() string {
	type line struct {
		traced
		host string
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []line
	for host, list := range t.hosts {
		for _, one := range list[max(0, len(list)-keptLines):] {
			all = append(all, line{one, host})
		}
	}
	slices.SortFunc(all, func(a, b line) int { return cmp.Compare(a.order, b.order) })
	var b strings.Builder
	for _, one := range all {
		fmt.Fprintf(&b, "%12.6f %-8s %s\n", one.at.Seconds(), one.host, one.text)
	}
	return b.String()
}
