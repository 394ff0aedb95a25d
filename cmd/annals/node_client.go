package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/client"
)

// nodeClient asks one node, and repeats no request unless its flags say so.
type nodeClient struct {
	*client.Client
	flags   *clusterFlags
	address string // a prefix of all paths
	host    string // for people
}

// handshakeTimeout is how long a node may take for the handshake of TLS.
const handshakeTimeout = 10 * time.Second

// connect returns a client of the node at an address.
func (f *clusterFlags) connect(address string) (*nodeClient, error) {
	address, err := client.Address(address)
	if err != nil {
		return nil, cannot(err)
	}
	// The variable is not the default of the flag: --help would print the password.
	if !f.anonymous {
		f.password = cmp.Or(f.password, os.Getenv(passwordVariable))
	}
	o := client.Options{Nodes: []string{address}, Timeout: cmp.Or(f.timeout, -1), RetryFor: cmp.Or(f.retryFor, -1)}
	if f.password != "" {
		o.Login = url.UserPassword(f.user, f.password)
	}
	if o.TLS, err = f.tls(); err != nil {
		return nil, cannot(err)
	}
	transport := client.NewTransport(o.TLS)
	transport.TLSHandshakeTimeout = handshakeTimeout // A port of plain HTTP never answers one.
	o.Transport = transport
	c, err := client.New(o)
	return &nodeClient{Client: c, flags: f, address: address, host: client.Response{Node: address}.Host()}, err
}

// on runs what a command does with the node, until Ctrl-C.
func (f *clusterFlags) on(do func(ctx context.Context, c *nodeClient) error) error {
	c, err := f.connect(f.node)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := interruptible()
	defer stop()
	return do(ctx, c)
}

// refusedError is a refusal with what to do about it.
type refusedError struct {
	refusal *client.Error
	message string
}

func (e *refusedError) Error() string { return e.message }
func (e *refusedError) Unwrap() error { return e.refusal }

// send sends a request and returns the answer, whatever its status.
func (c *nodeClient) send(ctx context.Context, q client.Request) (client.Response, error) {
	a, err := c.Do(ctx, q)
	return a, c.explain(err)
}

// explain turns an error into a sentence that says what to do.
func (c *nodeClient) explain(err error) error {
	if _, unanswered := errors.AsType[*client.UnreachableError](err); unanswered {
		return c.explainUnanswered(err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%w; see --ca", err)
	}
	a, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	text := visible(a.Text)
	e := &refusedError{refusal: a}
	switch {
	case a.Status == http.StatusBadRequest && strings.Contains(a.Text, "HTTPS"):
		// Some servers of HTTPS answer plain HTTP in words.
		return c.explainUnanswered(fmt.Errorf("%s refuses: %s (status %d)", a.Node, text, a.Status))
	case a.Status == http.StatusUnauthorized && c.flags.password == "":
		e.message = fmt.Sprintf("%s asks for credentials: set %s to the password of %s, or see --user and --password", a.Node, passwordVariable, c.flags.user)
	case a.Status == http.StatusUnauthorized:
		e.message = c.explainUnauthorized(a.Node)
	case a.Status == http.StatusServiceUnavailable:
		e.message = fmt.Sprintf("%s is not ready: %s", a.Node, cmp.Or(text, "it may be starting or stopping"))
	case a.Status == http.StatusNotFound && text == "":
		path, _, _ := strings.Cut(a.Path, "?")
		e.message = fmt.Sprintf("%s does not serve %s: it is not a node of this version, or DisableAdminUi is set", a.Node, path)
	default:
		e.message = fmt.Sprintf("%s refuses: %s (status %d)", a.Node, cmp.Or(text, http.StatusText(a.Status)), a.Status)
	}
	return e
}

// nodeFlag is how proposed commands name this node.
func (c *nodeClient) nodeFlag() string { return " --node " + c.address }

// visible returns a text as it is if all of it can be shown, else quoted.
func visible(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return strconv.Quote(text)
		}
	}
	return text
}

// table is rows whose cells are separated by tabs.
type table struct{ text bytes.Buffer }

// row adds a row.
func (t *table) row(format string, args ...any) { fmt.Fprintf(&t.text, format+"\n", args...) }

// print prints the rows with their cells below each other.
func (t *table) print(w io.Writer) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := columns.Write(t.text.Bytes()); err != nil {
		return err
	}
	return columns.Flush()
}

// printJSON prints a value as an indented document.
func printJSON(w io.Writer, value any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// ask sends one request and returns the body of the answer, which is JSON. The node does
// the work itself and redirects nowhere.
func (c *nodeClient) ask(ctx context.Context, method, path, accept string) ([]byte, error) {
	answer, err := c.Do(ctx, client.Request{Method: method, Path: path, Header: map[string]string{"Accept": accept}, Stay: true})
	if err == nil {
		err = answer.Err()
	}
	switch {
	case err != nil:
		return nil, c.explain(err)
	case !json.Valid(answer.Body):
		return nil, fmt.Errorf("%s answers something other than JSON: is it a node?", c.host)
	}
	return answer.Body, nil
}

// nodes returns the nodes of the cluster as one of them sees it.
func (c *nodeClient) nodes(ctx context.Context) ([]client.Member, error) {
	members, err := c.Members(ctx)
	return members, c.explain(err)
}

// member returns a client of another node of the cluster.
func (c *nodeClient) member(m *client.Member) (*nodeClient, error) {
	scheme, _, _ := strings.Cut(c.address, "://")
	return c.flags.connect(scheme + "://" + m.Address())
}

// allAnswer fails, naming the member, when a member does not count as alive and does not answer
// either. A node may miss another one for a while: such a member is asked itself, and one that
// answers is named on standard error.
func (c *nodeClient) allAnswer(ctx context.Context, view []client.Member, stderr io.Writer) error {
	for i := range view {
		m := &view[i]
		if m.Alive {
			continue
		}
		one, err := c.member(m)
		if err == nil {
			_, err = one.nodes(ctx)
			one.Close()
		}
		if err != nil {
			return fmt.Errorf("%s is not alive as %s sees it, and does not answer: %w", m.Address(), c.host, err)
		}
		complain(stderr, fmt.Errorf("%s is not alive as %s sees it, but answers: the command continues with it", m.Address(), c.host))
	}
	return nil
}

// nextNode returns the first node that is not among those done, the leader only when
// it is the last, and how many are left with it.
func nextNode(view []client.Member, done map[string]bool) (next *client.Member, left int) {
	for i := range view {
		n := &view[i]
		if done[n.Address()] {
			continue
		}
		left++
		if next == nil || next.State == "Leader" {
			next = n
		}
	}
	return next, left
}

// probeTimeout bounds a question that only explains an error.
const probeTimeout = 3 * time.Second

// explainUnanswered says so when a node speaks the other one of HTTP and HTTPS.
func (c *nodeClient) explainUnanswered(err error) error {
	network, dialled := errors.AsType[*net.OpError](err)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, context.Canceled) || dialled && network.Op == "dial" {
		return err
	}
	u, e := url.Parse(c.address)
	if e != nil || u.Host == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	switch {
	case u.Scheme == "https" && speaksHTTP(ctx, u.Host):
		return fmt.Errorf("%s speaks plain HTTP, not HTTPS: write --node http://%s", u.Host, u.Host)
	case u.Scheme == "http" && speaksTLS(ctx, u.Host):
		return fmt.Errorf("%s speaks HTTPS, not plain HTTP: write --node https://%s, and --ca with the folder of its authority", u.Host, u.Host)
	}
	return err
}

// speaksHTTP says whether a server answers plain HTTP.
func speaksHTTP(ctx context.Context, host string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/ping", nil)
	if err != nil {
		return false
	}
	t := client.NewTransport(nil)
	defer t.CloseIdleConnections()
	a, err := t.RoundTrip(r)
	return err == nil && a.Body.Close() == nil
}

// speaksTLS says whether a server answers a handshake of TLS, with any certificate.
func speaksTLS(ctx context.Context, host string) bool {
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "443")
	}
	// Nothing is sent over this connection.
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := d.DialContext(ctx, "tcp", host)
	return err == nil && conn.Close() == nil
}

// explainUnauthorized says whether the password is wrong or a right is missing: nodes answer both
// alike, but every user may ask about itself.
func (c *nodeClient) explainUnauthorized(host string) string {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	a, err := c.Do(ctx, client.Request{
		Method: http.MethodGet, Path: "/users/$current", Header: map[string]string{"Accept": client.MediaJSON}, Stay: true,
		// The client does not have a password that was typed.
		Login: url.UserPassword(c.flags.user, c.flags.password),
	})
	switch {
	case err == nil && a.Status == http.StatusOK:
		return fmt.Sprintf("user %q may not do this on %s: ask as a user who has the right, with --user, or have an administrator give it", c.flags.user, host)
	case err == nil && a.Status == http.StatusUnauthorized:
		return fmt.Sprintf("%s does not accept user %q with this password: correct --user, and %s or --password", host, c.flags.user, passwordVariable)
	}
	return fmt.Sprintf("%s does not accept user %q with this password (%s or --password), or the user may not do this", host, c.flags.user, passwordVariable)
}

const sessionsPath = "/admin/backup/sessions"

// nodeSource reads the database of a running node by its backup sessions.
type nodeSource struct {
	*nodeClient
	begun bool // a session was: before that nothing was tried
}

var _ backup.Source = (*nodeSource)(nil)

// Begin opens a session. A node may sync and read for it longer than it takes to answer anything
// else.
func (s *nodeSource) Begin(ctx context.Context) (session backup.Session, err error) {
	body, err := s.ask(ctx, http.MethodPost, sessionsPath, client.MediaJSON)
	if err != nil {
		return session, err
	}
	if err := json.Unmarshal(body, &session); err != nil {
		return session, fmt.Errorf("%s answers %s with something other than a session: %w", s.host, sessionsPath, err)
	}
	s.begun = true
	return session, nil
}

// Open reads a file from an offset on. A transfer that breaks resumes where it broke.
func (s *nodeSource) Open(ctx context.Context, session, name string, offset int64) (io.ReadCloser, error) {
	path := sessionsPath + "/" + url.PathEscape(session) + "/files/" + url.PathEscape(name)
	body, err := s.Download(ctx, client.Request{Path: path}, offset)
	if err != nil {
		return nil, s.lost(err)
	}
	return sourceBody{body, s}, nil
}

// sourceBody is a file whose session may end on the way.
type sourceBody struct {
	io.ReadCloser
	source *nodeSource
}

func (b sourceBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.source.lost(err)
	}
	return n, err
}

// lost says whether an error means that the session has ended.
func (s *nodeSource) lost(err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	switch {
	case ok && refused.Status == http.StatusGone:
		return errors.Join(s.explain(err), &backup.Ended{Reason: refused.Text})
	case ok && refused.Status == http.StatusNotFound:
		return errors.Join(s.explain(err), backup.ErrSessionGone)
	}
	return s.explain(err)
}

// End ends a session.
func (s *nodeSource) End(ctx context.Context, session string) error {
	answer, err := s.Do(ctx, client.Request{Method: http.MethodDelete, Path: sessionsPath + "/" + url.PathEscape(session), Stay: true})
	if err == nil && answer.Status != http.StatusNotFound && answer.Status != http.StatusGone {
		err = answer.Err()
	}
	return s.explain(err)
}
