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

	"github.com/annalsdb/annals/admin/scavenge"
)

const (
	scavengePath = "/admin/scavenge"

	// maxScavengeAnswer keeps something that is no node from filling the memory: an
	// estimate has some 200 bytes for each chunk file of 256 MiB and each stream asked for.
	maxScavengeAnswer = 1 << 30

	// noSuchScavenge is what a node says when the run to stop is not running.
	noSuchScavenge = "Scavenge Id does not exist"
)

// scavengeClient asks one node about its scavenges.
type scavengeClient struct {
	flags   *scavengeFlags
	http    *http.Client
	address string // a prefix of what is asked for
	host    string // for people
}

// client returns a client of the node at an address.
func (f *scavengeFlags) client(address string) (*scavengeClient, error) {
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
	return &scavengeClient{
		flags:   f,
		address: address,
		host:    u.Host,
		http: &http.Client{
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true},
			// A node does what it is asked for itself and redirects nowhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func (c *scavengeClient) close() { c.http.CloseIdleConnections() }

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
	refused, ok := errors.AsType[*refusedError](err)
	if !ok {
		return false
	}
	switch refused.status {
	case http.StatusServiceUnavailable, http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	}
	return false
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

// ask sends one request and returns the body of the answer, which is JSON.
func (c *scavengeClient) ask(ctx context.Context, method, path, accept string) (body []byte, err error) {
	if c.flags.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.flags.timeout)
		defer cancel()
	}
	r, err := http.NewRequestWithContext(ctx, method, c.address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	if c.flags.password != "" {
		r.SetBasicAuth(c.flags.user, c.flags.password)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, c.away(ctx, err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxScavengeAnswer))
	if err != nil {
		return nil, c.away(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, c.refused(resp, body)
	}
	if !json.Valid(body) {
		return nil, fmt.Errorf("%s answers something that is no JSON: is it a node?", c.host)
	}
	return body, nil
}

// away wraps an error of the way to the node, without the request in it.
func (c *scavengeClient) away(ctx context.Context, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("the certificate of %s is not believed, see --ca: %w", c.host, err)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("nothing within %v: %w", c.flags.timeout, err)
	}
	return &awayError{host: c.host, err: err}
}

// refused says why a node did not do what it was asked for.
func (c *scavengeClient) refused(resp *http.Response, body []byte) error {
	text := visible(strings.Join(strings.Fields(strings.ToValidUTF8(string(body[:min(len(body), maxClusterMessage)]), "")), " "))
	e := &refusedError{status: resp.StatusCode, text: text}
	switch {
	case e.status == http.StatusUnauthorized && c.flags.password == "":
		e.message = fmt.Sprintf("%s asks for credentials: set %s to the password of %s, or see --user and --password", c.host, passwordVariable, c.flags.user)
	case e.status == http.StatusUnauthorized:
		e.message = fmt.Sprintf("%s does not accept user %q with this password (of --password or %s), or the user may not operate the cluster", c.host, c.flags.user, passwordVariable)
	case e.status == http.StatusServiceUnavailable:
		e.message = fmt.Sprintf("%s is not ready: %s", c.host, cmp.Or(text, "it may be starting or stopping"))
	case e.status == http.StatusNotFound && text == "":
		e.message = fmt.Sprintf("%s does not serve %s: it is no node, or DisableAdminUi is set", c.host, resp.Request.URL.Path)
	default:
		e.message = fmt.Sprintf("%s refuses: %s (status %d)", c.host, cmp.Or(text, http.StatusText(e.status)), e.status)
	}
	return e
}

// doubt explains an error of a request that may have been acted on.
func (c *scavengeClient) doubt(ctx context.Context, err error, what string) error {
	if what != "" {
		what = "; " + what + " is shown by annals scavenge status" + c.nodeFlag()
	}
	if ctx.Err() != nil {
		return &codedError{code: exitDetached, err: errors.New("interrupted" + what)}
	}
	_, broken := errors.AsType[*awayError](err)
	if broken && !errors.Is(err, syscall.ECONNREFUSED) || hasStatus(err, http.StatusRequestTimeout) {
		return fmt.Errorf("%w%s", err, what)
	}
	return err
}

// nodeFlag is how commands that are proposed name this node.
func (c *scavengeClient) nodeFlag() string { return " --node " + c.address }

// get reads a run.
func (c *scavengeClient) get(ctx context.Context, which string) (scavengeRun, error) {
	body, err := c.ask(ctx, http.MethodGet, scavengePath+"/"+which, "application/json")
	if err != nil {
		return scavengeRun{}, err
	}
	run := scavengeRun{}
	if err := json.Unmarshal(body, &run); err != nil {
		return scavengeRun{}, fmt.Errorf("read the answer of %s: %w", c.host, err)
	}
	run.Node = c.host
	return run, nil
}

// current returns the run that is under way; its id is empty when there is none.
func (c *scavengeClient) current(ctx context.Context) (scavengeRun, error) {
	run, err := c.get(ctx, "current")
	if run.ID != "" {
		run.Result = scavenge.ResultInProgress
	}
	return run, err
}

// last returns the last run since the node has started; its id is empty when there
// is none, and with nodes that do not tell.
func (c *scavengeClient) last(ctx context.Context) (scavengeRun, error) {
	run, err := c.get(ctx, "last")
	if hasStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed) {
		run, err = scavengeRun{Node: c.host, Result: scavenge.ResultUnknown}, nil
	}
	if strings.Trim(run.ID, "0-") == "" {
		run.ID = ""
	}
	return run, err
}

// newest returns the run that is under way, else the last one.
func (c *scavengeClient) newest(ctx context.Context) (scavengeRun, error) {
	run, err := c.current(ctx)
	if err != nil || run.ID != "" {
		return run, err
	}
	return c.last(ctx)
}

// recorded looks for the end of a run in its history, which outlives a restart. Its
// id is empty when there is none.
func (c *scavengeClient) recorded(ctx context.Context, id string) (scavengeRun, error) {
	body, err := c.ask(ctx, http.MethodGet, "/streams/"+url.PathEscape("$scavenges-"+id)+"/head", "application/vnd.eventstore.event+json")
	switch {
	case isAway(err):
		return scavengeRun{}, err
	case err != nil:
		return scavengeRun{}, nil // Written as well as it can be, and readable to whom its ACL allows.
	}
	var e struct {
		Type string `json:"eventType"`
		Data struct {
			Result scavenge.Result `json:"result"`
			Error  string          `json:"error"`
			Saved  int64           `json:"spaceSaved"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &e); err != nil || e.Type != "$scavengeCompleted" {
		return scavengeRun{}, nil
	}
	run := scavengeRun{Node: c.host, ID: id, Result: e.Data.Result, Error: e.Data.Error, Saved: e.Data.Saved}
	switch run.Result {
	case scavenge.ResultSuccess, scavenge.ResultStopped:
	default: // Failed, or Interrupted, as history calls it.
		run.Result = scavenge.ResultErrored
	}
	return run, nil
}

// start starts a run and returns its id.
func (c *scavengeClient) start(ctx context.Context, query url.Values) (id string, err error) {
	path := scavengePath
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	body, err := c.ask(ctx, http.MethodPost, path, "application/json")
	if err != nil {
		return "", err
	}
	var answer struct {
		ID string `json:"scavengeId"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.ID == "" {
		return "", fmt.Errorf("%s does not say which scavenge it started: is it a node?", c.host)
	}
	return answer.ID, nil
}

// stop stops a run, or the current one, and returns its id.
func (c *scavengeClient) stop(ctx context.Context, id string) (stopped string, err error) {
	body, err := c.ask(ctx, http.MethodDelete, scavengePath+"/"+url.PathEscape(id), "application/json")
	if refused, ok := errors.AsType[*refusedError](err); ok && refused.status == http.StatusNotFound && strings.Contains(refused.text, noSuchScavenge) {
		if id == "current" {
			return "", fmt.Errorf("no scavenge is running on %s", c.host)
		}
		return "", fmt.Errorf("scavenge %s is not running on %s", visible(id), c.host)
	}
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(body, &stopped); err != nil {
		return "", fmt.Errorf("read the answer of %s: %w", c.host, err)
	}
	return stopped, nil
}

// visible returns a text as it is if all of it can be shown, else quoted.
func visible(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return strconv.Quote(text)
		}
	}
	return text
}

// namedScavenge is a run of which no more than its id is known.
type namedScavenge struct {
	Node string `json:"node"`
	ID   string `json:"scavengeId"`
}

// print prints the id, for scripts.
func (n namedScavenge) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, n)
	}
	_, err := fmt.Fprintln(w, visible(n.ID))
	return err
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
