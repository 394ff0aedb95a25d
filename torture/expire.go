package torture

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

// expiry is one or all of the nodes with certificates that run out while they run.
type expiry struct {
	operator
	what   string
	nodes  []int
	serial map[int]string
	ends   time.Time      // of the last of them
	any    *client.Client // of an operator who takes any certificate
	// fast is a node whose clock is ahead, so that it alone takes the certificate for expired; -1:
	// none.
	fast int
}

// DriftLimit bounds how far the clock of a node may be off without a fault. A node must take a
// certificate that lasts expiryShortest, and refuse it refusalLimit after its end.
const DriftLimit = 4 * time.Second

// saysExpired is in the log of a node that does not start because its certificate has run out.
const saysExpired = "expired on"

const (
	// The certificates last from so long to twice as long.
	expiryShortest = 8 * time.Second
	// By a clock that is ahead by clockAhead, one of clockLasts has run out.
	clockAhead = 2 * time.Hour
	clockLasts = time.Hour
	// refusalLimit bounds how long after its end a certificate may be accepted: clocks drift.
	// Within it a node ends that cannot start.
	refusalLimit = 30 * time.Second
	// toldLimit bounds how long after the first refusal a node must say so: it does so once a
	// minute.
	toldLimit = 75 * time.Second
)

// strikeExpire gives one node or all certificates that end within seconds. They are renewed before
// that, or run out: then no new connection may come about by them. The cure renews them.
func strikeExpire(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	e := &expiry{operator: operator{n}, serial: map[int]string{}, fast: -1}
	if n.excused.Load() > 0 || !e.settled(ctx) {
		return "", nil, errNotNow
	}
	// From here on nothing is given up half way, and only an interruption ends what waits to judge.
	ctx = n.life
	anyone := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
	e.any = newHTTP(n.dial.wire(anyone))
	node := n.anyVoter()
	e.nodes, e.what = []int{node}, "the certificate of "+n.role(node)
	lasts := expiryShortest + time.Duration(n.rng.Int64N(int64(expiryShortest)))
	switch n.rng.IntN(5) {
	case 0:
		e.nodes, e.what = n.rng.Perm(n.size), "the certificates of all nodes"
	case 1:
		e.fast, lasts = (node+1+n.rng.IntN(n.size-1))%n.size, clockLasts
	}
	n.expiring.Store(&e.nodes)
	err := e.begin(ctx, lasts)
	switch {
	case errors.Is(err, errNotTaken):
		e.what += ", given up"
		err = nil
	case err != nil:
	case e.fast >= 0:
		e.what += fmt.Sprintf(", which had run out by the clock of %s", nodeName(e.fast))
		if err = n.c.SetClock(e.fast, clockAhead); err == nil {
			err = e.judge(ctx)
		}
	case n.rng.IntN(3) == 0:
		e.what += ", renewed shortly before the end"
		if err = e.renew(ctx); err == nil {
			e.awaitEnd(ctx)
			err = e.part()
		}
	default:
		e.what += ", which ran out"
		e.awaitEnd(ctx)
		err = e.judge(ctx)
	}
	return e.what, e.cure, err
}

// begin gives out the certificates, and looks at what the nodes say of them.
func (e *expiry) begin(ctx context.Context, lasts time.Duration) error {
	trust := e.trust
	trust.Lasts = lasts
	for _, node := range e.nodes {
		serial, err := e.c.Certify(node, trust)
		if err != nil {
			return err
		}
		e.serial[node] = serial
		ends := e.c.Certificates().ending(serial).Certificate.NotAfter
		if ends.After(e.ends) {
			e.ends = ends
		}
		t := e.c.Targets()[node]
		if err := e.confirm(ctx, t, serial, e.any); err != nil {
			return err
		}
		e.measure(ctx, t, ends)
	}
	return nil
}

// awaitEnd waits until the certificates have run out.
func (e *expiry) awaitEnd(ctx context.Context) {
	_ = clock.Sleep(ctx, time.Until(e.ends)+time.Second)
}

// measure compares the metric of a node with the end of its certificate.
func (e *expiry) measure(ctx context.Context, t Target, ends time.Time) {
	const metric = `annals_certificate_not_after_timestamp_seconds{certificate="node"} `
	metrics := client.Request{Method: http.MethodGet, Path: "/metrics"}
	a, err := exchange(ctx, e.any, t, metrics, orderLimit)
	if err != nil || a.Status != http.StatusOK {
		return
	}
	_, text, _ := bytes.Cut(a.Body, []byte(metric))
	text, _, _ = bytes.Cut(text, []byte("\n"))
	if at, err := strconv.ParseFloat(string(text), 64); err != nil || int64(at) != ends.Unix() {
		e.find.add(kindCertificate, "%s has the certificate %s, which ends at %d, and its metric "+
			"says %q", t.Name, e.serial[t.Index], ends.Unix(), text)
	}
}

// judge looks whether certificates that have run out are refused everywhere, and what nodes and
// clients learn of it.
func (e *expiry) judge(ctx context.Context) error {
	if e.fast < 0 {
		for _, node := range e.nodes {
			e.clients(ctx, e.c.Targets()[node])
		}
	}
	for _, node := range e.nodes {
		if err := e.peers(ctx, node); err != nil {
			return err
		}
	}
	if e.fast >= 0 {
		return e.part()
	}
	if err := e.apart(ctx); err != nil {
		return err
	}
	if e.rng.IntN(3) == 0 {
		return e.restart(ctx, e.nodes[0])
	}
	return nil
}

// clients looks what a client learns that connects to a node.
func (e *expiry) clients(ctx context.Context, t Target) {
	fresh := newHTTP(e.dial.wire(e.c.Certificates().Client()))
	defer fresh.Close()
	ping := client.Request{Method: http.MethodGet, Path: "/ping"}
	limited, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	for {
		_, err := exchange(limited, fresh, t, ping, orderLimit)
		invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
		if ok && invalid.Reason == x509.Expired {
			return
		}
		// A connection may be slow to come about. An answer is one too many.
		if err == nil || clock.Sleep(limited, 200*time.Millisecond) != nil {
			e.found(kindExpired, "a client that connects to %s, whose certificate ended at %s, "+
				"learns nothing of that within %s: %v", t.Name, e.ends.UTC(), orderLimit, err)
			return
		}
	}
}

// peers connects to the others with the certificate of a node. Those must refuse it by whose clocks
// it has run out, and the others must not, as they must not refuse a certificate that is valid.
func (e *expiry) peers(ctx context.Context, node int) error {
	over, err := e.c.Certificates().pair(e.serial[node])
	if err != nil {
		return err
	}
	valid, err := e.c.Certificates().valid(e.c.Targets()[node], e.trust)
	if err != nil {
		return err
	}
	for _, t := range e.c.Targets() {
		if t.Index == node || t.Index >= e.size {
			continue
		}
		if node == e.nodes[0] { // It takes time: a node that accepts a certificate awaits more.
			if refused := e.refuses(ctx, t, valid); refused != nil {
				e.found(kindExpired, "%s refuses a certificate that is valid: %v", t.Name, refused)
			}
		}
		expired := e.fast < 0 || e.fast == t.Index
		late, cancel := context.WithTimeout(ctx, refusalLimit)
		refused := e.refuses(ctx, t, over)
		for expired && refused == nil && clock.Sleep(late, time.Second) == nil {
			refused = e.refuses(ctx, t, over)
		}
		cancel()
		switch {
		case expired && refused == nil:
			e.found(kindExpired, "%s accepts the certificate of %s, which ended at %s, for a new connection",
				t.Name, nodeName(node), e.ends.UTC())
		case !expired && refused != nil:
			e.found(kindExpired, "%s refuses the certificate of %s, which ends at %s: %v",
				t.Name, nodeName(node), e.ends.UTC(), refused)
		}
	}
	return nil
}

// silence is how long a node may take to refuse a certificate.
const silence = 2 * time.Second

// refuses connects to the port between nodes and returns by what alert the node refuses a
// certificate, nil if it awaits more.
func (e *expiry) refuses(ctx context.Context, t Target, shown tls.Certificate) error {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	conn, err := e.dial.orSystem()(ctx, "tcp", t.Peer)
	if err != nil {
		return nil // The node has ended, or starts.
	}
	defer func() { _ = conn.Close() }()
	secured := tls.Client(conn, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{shown}, InsecureSkipVerify: true,
	})
	if err = secured.HandshakeContext(ctx); err == nil {
		if err = secured.SetReadDeadline(time.Now().Add(silence)); err == nil {
			_, err = secured.Read(make([]byte, 1))
		}
	}
	if alert, ok := errors.AsType[*net.OpError](err); ok && alert.Op == "remote error" {
		return err
	}
	return nil
}

// part breaks the connections of the nodes, as far as that can be done.
func (e *expiry) part() error {
	if !e.c.Can().Resets {
		return nil
	}
	return each(e.nodes, func(node int) error {
		_, err := e.c.Reset(node, 1)
		return err
	})
}

// apart breaks all connections of the nodes. They must not come back, and say why. Where
// connections cannot be broken, all other nodes are killed and started.
func (e *expiry) apart(ctx context.Context) error {
	if !e.c.Can().Resets {
		if len(e.nodes) > 1 {
			return nil // None of them would start again.
		}
		others := slices.DeleteFunc(e.rng.Perm(e.size), func(i int) bool { return i == e.nodes[0] })
		err := each(others, e.c.Kill)
		err = errors.Join(err, each(others, e.start))
		if err != nil {
			return err
		}
	}
	if err := e.part(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, toldLimit)
	defer cancel()
	for outside := 0; outside < 3; {
		t, state := e.inside(ctx)
		switch outside++; {
		case state != "" && limited.Err() != nil:
			e.found(kindExpired, "%s after its connections broke %s, whose certificate ended at %s, still "+
				"has the state %q", toldLimit, t.Name, e.ends.UTC(), state)
			return nil
		case state != "":
			outside = 0
		}
		_ = clock.Sleep(ctx, time.Second)
	}
	if len(e.nodes) > 1 {
		return nil
	}
	t := e.c.Targets()[e.nodes[0]]
	const told = "another node refuses the certificate of this node"
	ready := client.Request{Method: http.MethodGet, Path: "/health/ready"}
	for logged, shown := false, false; ; {
		logged = logged || strings.Contains(e.c.LogTail(t.Index), told)
		a, err := exchange(ctx, e.any, t, ready, orderLimit)
		shown = shown || err == nil && a.Status == http.StatusServiceUnavailable &&
			bytes.Contains(a.Body, []byte("certificate"))
		if logged && shown {
			return nil
		}
		if clock.Sleep(limited, 200*time.Millisecond) != nil {
			e.found(kindExpired, "%s does not say within %s that its certificate is refused: log %t, "+
				"/health/ready %t: %v; its log ends:\n%s",
				t.Name, toldLimit, logged, shown, a, e.c.LogTail(t.Index))
			return nil
		}
	}
}

// inside returns a node with a certificate that has run out and that belongs to the cluster all the
// same, and its state; no state if there is none.
func (e *expiry) inside(ctx context.Context) (Target, string) {
	for _, t := range e.c.Targets() {
		if !slices.Contains(e.nodes, t.Index) {
			continue
		}
		v := (&watch{http: e.any}).ask(ctx, t)
		if v.state == "Leader" || v.state == "Follower" {
			return t, v.state
		}
	}
	return Target{}, ""
}

// restart kills a node whose certificate has run out. It must not start, and say why.
func (e *expiry) restart(ctx context.Context, node int) error {
	e.what += fmt.Sprintf("; %s was started again", nodeName(node))
	if err := errors.Join(e.c.Kill(node), e.start(node)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, refusalLimit)
	defer cancel()
	for e.c.Running(node) {
		if clock.Sleep(limited, 200*time.Millisecond) != nil {
			e.found(kindExpired, "%s started with a certificate that had ended at %s",
				nodeName(node), e.ends.UTC())
			return nil
		}
	}
	if tail := e.c.LogTail(node); !strings.Contains(tail, saysExpired) {
		e.found(kindExpired, "%s does not start, and does not say that its certificate has run out; "+
			"its log ends:\n%s", nodeName(node), tail)
	}
	return nil
}

// renew gives the nodes certificates that last.
func (e *expiry) renew(ctx context.Context) error {
	for _, node := range e.nodes {
		serial, err := e.c.Certify(node, e.trust)
		if err != nil {
			return err
		}
		if e.c.Running(node) {
			if err = e.confirm(ctx, e.c.Targets()[node], serial, e.any); errors.Is(err, errNotTaken) {
				err = nil // Whether the cluster heals is judged next.
			}
		}
		// One that runs stays as it is.
		if err = errors.Join(err, e.start(node)); err != nil {
			return err
		}
	}
	return nil
}

// cure renews the certificates before or after the clock is right again.
func (e *expiry) cure(context.Context) error {
	defer e.expiring.Store(nil)
	defer e.any.Close()
	right := func() error { return nil }
	if e.fast >= 0 {
		right = func() error { return e.c.SetClock(e.fast, 0) }
	}
	if e.rng.IntN(2) == 0 {
		return errors.Join(right(), e.renew(e.life))
	}
	return errors.Join(e.renew(e.life), right())
}
