package simulation

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/internal/vfs"
)

const (
	// keptLines bounds what is kept of each host, keptOperations of that those with its disk, and
	// longestLine each line, in bytes.
	keptLines      = 300
	keptOperations = 100
	longestLine    = 500
)

// trace keeps the last events of every host, in virtual time. Any goroutine may call its methods.
type trace struct {
	start time.Time

	mu    sync.Mutex
	count int
	hosts map[string][]traced
	disks map[string][]traced // the same hosts
}

type traced struct {
	order int // among all
	at    time.Duration
	text  string
	op    vfs.Op // of the disk, in place of a text
	err   error  // by which it fails
}

func (o *traced) String() string {
	switch {
	case o.op.Kind == "":
		return o.text
	case o.err != nil:
		return fmt.Sprintf("disk: %s %s at %d, %d bytes, fails: %v", o.op.Kind, o.op.Name, o.op.Offset, o.op.Len, o.err)
	}
	return fmt.Sprintf("disk: %s %s at %d, %d bytes %s", o.op.Kind, o.op.Name, o.op.Offset, o.op.Len, o.op.NewName)
}

func newTrace() *trace {
	return &trace{start: time.Now(), hosts: map[string][]traced{}, disks: map[string][]traced{}}
}

func (t *trace) add(host, text string) {
	t.keep(t.hosts, host, keptLines, traced{text: text[:min(len(text), longestLine)]})
}

// operation takes note of what begins with the disk of a host, or fails.
func (t *trace) operation(host string, op vfs.Op, err error) {
	t.keep(t.disks, host, keptOperations, traced{op: op, err: err})
}

func (t *trace) keep(in map[string][]traced, host string, most int, one traced) {
	one.at = time.Since(t.start)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	one.order = t.count
	list := append(in[host], one)
	if len(list) >= 2*most {
		list = slices.Delete(list, 0, len(list)-most)
	}
	in[host] = list
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
		fmt.Fprintf(&b, "%12.6f %s\n", one.at.Seconds(), &one)
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
	for host := range t.hosts {
		logged, disk := t.hosts[host], t.disks[host]
		for _, one := range slices.Concat(logged[max(0, len(logged)-keptLines):], disk[max(0, len(disk)-keptOperations):]) {
			all = append(all, line{one, host})
		}
	}
	slices.SortFunc(all, func(a, b line) int { return cmp.Compare(a.order, b.order) })
	var b strings.Builder
	for _, one := range all {
		fmt.Fprintf(&b, "%12.6f %-8s %s\n", one.at.Seconds(), one.host, &one.traced)
	}
	return b.String()
}
