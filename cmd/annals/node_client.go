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
	"unicode"
)

const (
	// maxNodeAnswer keeps something that is no node from filling the memory: the estimate
	// of a scavenge has some 200 bytes for each chunk file of 256 MiB and each stream asked for.
	maxNodeAnswer = 1 << 30
	// maxRefusal is how much of a refusal is shown.
	maxRefusal = 4 << 10
	// maxHops is how many nodes are asked until one does not redirect.
	maxHops = 5
)

// nodeClient asks one node.
type nodeClient struct {
	flags   *clusterFlags
	http    *http.Client
	address string // a prefix of what is asked for
	host    string // for people
}

// nodeRequest is one request.
type nodeRequest struct {
	method, path, accept string
	body                 []byte
	contentType          string
	follow               bool // go where the node redirects to: the leader
}

// nodeAnswer is what a node answers, whatever its status.
type nodeAnswer struct {
	host   string // that gave it
	path   string
	status int
	header http.Header
	body   []byte
}

// text returns the body as a line, for people.
func (a *nodeAnswer) text() string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(a.body[:min(len(a.body), maxRefusal)]), "")), " ")
}

// connect returns a client of the node at an address.
func (f *clusterFlags) connect(address string) (*nodeClient, error) {
	address, err := nodeAddress(address)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("address of the node: %w", err)
	}
	// What is in the environment is not shown by --help, hence no default of the flag.
	f.password = cmp.Or(f.password, os.Getenv(passwordVariable))
	tlsConfig, err := f.tls()
	if err != nil {
		return nil, err
	}
	return &nodeClient{
		flags:   f,
		address: address,
		host:    u.Host,
		http: &http.Client{
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true},
			// Followed by hand: the standard client would not send the password to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func (c *nodeClient) close() { c.http.CloseIdleConnections() }

// awayError says that a node gave no answer at all.
type awayError struct {
	host string
	err  error
}

func (e *awayError) Error() string {
	var network *net.OpError
	switch {
	case errors.Is(e.err, syscall.ECONNREFUSED):
		return e.host + " refuses the connection: no node listens there"
	case errors.As(e.err, &network) && network.Op == "dial":
		return fmt.Sprintf("%s is not reached: %v", e.host, network.Err)
	}
	return fmt.Sprintf("%s does not answer: %v", e.host, e.err)
}

func (e *awayError) Unwrap() error { return e.err }

// refusedError is an answer other than 200.
type refusedError struct {
	status  int
	text    string // of the body
	message string
}

func (e *refusedError) Error() string { return e.message }

// isAway says whether a node may be about to start: the same question can be
// answered later.
func isAway(err error) bool {
	if _, ok := errors.AsType[*awayError](err); ok {
		return true
	}
	return hasStatus(err, http.StatusServiceUnavailable, http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout)
}

// hasStatus says whether a node answered with one of some status codes.
func hasStatus(err error, codes ...int) bool {
	refused, ok := errors.AsType[*refusedError](err)
	if !ok {
		return false
	}
	for _, code := range codes {
		if refused.status == code {
			return true
		}
	}
	return false
}

// send sends a request and returns the answer.
func (c *nodeClient) send(ctx context.Context, q *nodeRequest) (*nodeAnswer, error) {
	if c.flags.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.flags.timeout)
		defer cancel()
	}
	address := c.address + q.path
	for range maxHops {
		answer, to, err := c.sendOnce(ctx, q, address)
		if err != nil || to == "" {
			return answer, err
		}
		address = to
	}
	return nil, fmt.Errorf("redirected more than %d times, at last to %s: the nodes do not agree on who leads, try again", maxHops-1, address)
}

// sendOnce returns the answer, or the address that the node redirects to.
func (c *nodeClient) sendOnce(ctx context.Context, q *nodeRequest, address string) (answer *nodeAnswer, to string, err error) {
	r, err := http.NewRequestWithContext(ctx, q.method, address, bytes.NewReader(q.body))
	if err != nil {
		return nil, "", err
	}
	if q.accept != "" {
		r.Header.Set("Accept", q.accept)
	}
	if q.contentType != "" {
		r.Header.Set("Content-Type", q.contentType)
	}
	if c.flags.password != "" {
		r.SetBasicAuth(c.flags.user, c.flags.password)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, "", c.away(ctx, r.URL.Host, err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxNodeAnswer))
	if err != nil {
		return nil, "", c.away(ctx, r.URL.Host, err)
	}
	if q.follow && resp.StatusCode == http.StatusTemporaryRedirect {
		to, err = c.flags.redirect(r.URL, resp)
		return nil, to, err
	}
	return &nodeAnswer{host: r.URL.Host, path: r.URL.Path, status: resp.StatusCode, header: resp.Header, body: body}, "", nil
}

// away wraps an error of the way to a node, without the request in it.
func (c *nodeClient) away(ctx context.Context, host string, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("the certificate of %s is not believed, see --ca: %w", host, err)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("nothing within %v: %w", c.flags.timeout, err)
	}
	return &awayError{host: host, err: err}
}

// refused says why a node did not do what it was asked for.
func (c *nodeClient) refused(a *nodeAnswer) *refusedError {
	text := visible(a.text())
	e := &refusedError{status: a.status, text: text}
	switch {
	case e.status == http.StatusUnauthorized && c.flags.password == "":
		e.message = fmt.Sprintf("%s asks for credentials: set %s to the password of %s, or see --user and --password", a.host, passwordVariable, c.flags.user)
	case e.status == http.StatusUnauthorized:
		e.message = fmt.Sprintf("%s does not accept user %q with this password (of --password or %s), or the user may not do this", a.host, c.flags.user, passwordVariable)
	case e.status == http.StatusServiceUnavailable:
		e.message = fmt.Sprintf("%s is not ready: %s", a.host, cmp.Or(text, "it may be starting or stopping"))
	case e.status == http.StatusNotFound && text == "":
		e.message = fmt.Sprintf("%s does not serve %s: it is no node, or DisableAdminUi is set", a.host, a.path)
	default:
		e.message = fmt.Sprintf("%s refuses: %s (status %d)", a.host, cmp.Or(text, http.StatusText(e.status)), e.status)
	}
	return e
}

// nodeFlag is how commands that are proposed name this node.
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

// ask sends one request and returns the body of the answer, which is JSON. A node
// does what it is asked for itself and redirects nowhere.
func (c *nodeClient) ask(ctx context.Context, method, path, accept string) ([]byte, error) {
	answer, err := c.send(ctx, &nodeRequest{method: method, path: path, accept: accept})
	switch {
	case err != nil:
		return nil, err
	case answer.status != http.StatusOK:
		return nil, c.refused(answer)
	case !json.Valid(answer.body):
		return nil, fmt.Errorf("%s answers something that is no JSON: is it a node?", c.host)
	}
	return answer.body, nil
}

// clusterNode is what gossip tells of a node.
type clusterNode struct {
	State string `json:"state"`
	Alive bool   `json:"isAlive"`
	Host  string `json:"httpEndPointIp"`
	Port  int    `json:"httpEndPointPort"`
}

func (n *clusterNode) address() string { return net.JoinHostPort(n.Host, strconv.Itoa(n.Port)) }

// nodes returns the nodes of the cluster as one of them sees it.
func (c *nodeClient) nodes(ctx context.Context) ([]clusterNode, error) {
	body, err := c.ask(ctx, http.MethodGet, "/gossip", "application/json")
	if err != nil {
		return nil, err
	}
	var view struct {
		Members []clusterNode `json:"members"`
	}
	if err := json.Unmarshal(body, &view); err != nil || len(view.Members) == 0 {
		return nil, fmt.Errorf("%s does not say which nodes its cluster has", c.host)
	}
	return view.Members, nil
}

// nextNode returns the first node that is not among those done, the leader only when
// it is the last, and how many are left with it.
func nextNode(view []clusterNode, done map[string]bool) (next *clusterNode, left int) {
	for i := range view {
		n := &view[i]
		if done[n.address()] {
			continue
		}
		left++
		if next == nil || next.State == "Leader" {
			next = n
		}
	}
	return next, left
}
