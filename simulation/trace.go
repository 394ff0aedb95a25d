package simulation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/internal/vfs"
)

const (
	// keptLines bounds what is kept of each host, keptErrors the errors before that, keptOperations
	// what is done with its disk, and longestLine each line, in bytes.
	keptLines      = 300
	keptErrors     = 50
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
	if len(list) >= 2*most+keptErrors {
		recent := len(list) - most
		errors := slices.DeleteFunc(slices.Clone(list[:recent]), func(o traced) bool { return !strings.HasPrefix(o.text, "[ERROR]") })
		list = slices.Concat(errors[max(0, len(errors)-keptErrors):], list[recent:])
	}
	in[host] = list
}

// lines takes the log of a node, without the lines of the lowest level.
type lines struct {
	trace *trace
	host  string
	gate  *gate
	won   *elections
	news  *news
}

func (l lines) Write(p []byte) (int, error) {
	if l.gate.failed.Load() && bytes.Contains(p, []byte("entering candidate state")) {
		l.gate.lose("run") // It would store a term next.
	}
	if bytes.Contains(p, []byte("failed to get log")) && within("processLogs") {
		l.gate.fatal(errors.New("raft would panic next: " + string(p)))
	}
	if bytes.HasPrefix(p, []byte("[DEBUG]")) {
		return len(p), nil
	}
	if l.host != restored { // which is a cluster of its own
		l.won.see(l.host, string(p))
	}
	if bytes.Contains(p, []byte("raft")) {
		l.news.tell(l.host)
	}
	l.trace.add(l.host, strings.TrimSpace(string(p)))
	return len(p), nil
}

// news tells one who waits which host's raft has just said something.
type news struct {
	mu      sync.Mutex
	waiting chan string // nil: no one waits
}

func (n *news) tell(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting != nil {
		n.waiting <- host
		n.waiting = nil
	}
}

// next returns the host, "" after a limit.
func (n *news) next(ctx context.Context, limit time.Duration) (string, error) {
	told := make(chan string, 1)
	n.mu.Lock()
	n.waiting = told
	n.mu.Unlock()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case host := <-told:
		return host, nil
	case <-late.C:
		return "", nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// elections knows who won which term, by what raft logs: no two nodes may win one. Clients see two
// leaders of a term only if they ask both in time.
type elections struct {
	mu     sync.Mutex
	winner map[string]string // host, by term
	left   map[string]bool   // hosts that were removed from the cluster
	wrong  string
}

func (e *elections) see(host, line string) {
	_, term, won := strings.Cut(line, "election won: term=")
	if !won {
		return
	}
	term, _, _ = strings.Cut(term, " ")
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.winner == nil {
		e.winner = map[string]string{}
	}
	if first := e.winner[term]; first != "" && first != host {
		e.wrong += fmt.Sprintf("%s and %s both won the election of term %s\n", first, host, term)
	}
	e.winner[term] = host
	if e.left[host] {
		e.wrong += fmt.Sprintf("%s was removed and won the election of term %s\n", host, term)
	}
}

// removed takes note that a host was removed from the cluster, or is to be a member.
func (e *elections) removed(host string, removed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left == nil {
		e.left = map[string]bool{}
	}
	e.left[host] = removed
}

func (e *elections) failed() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wrong
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
		for _, one := range slices.Concat(logged, disk[max(0, len(disk)-keptOperations):]) {
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
