package bucket

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/annalsdb/annals/internal/clock"
)

const (
	// With pauses that grow to mostPause, and are half of that on average, a store that is away for
	// a minute is waited for. Pauses that the store asks for, and timeouts, count too.
	retries    = 34
	leastPause = 200 * time.Millisecond
	mostPause  = 4 * time.Second
	patience   = time.Minute
	// leastTries are made however long the store is silent.
	leastTries = 3

	// maxAnswer is above 1000 keys of 1024 bytes, each written as three, with all that stores say
	// of an object.
	maxAnswer = 8 << 20
)

// request is sent until it is answered: each can be repeated.
type request struct {
	method, key string
	query       url.Values
	header      map[string]string // signed
	body        []byte
}

// malformed is an answer that is not one of the protocol.
type malformed struct{ error }

func (m *malformed) Unwrap() error { return m.error }

// do sends a request, again and again if that can help, and gives accept the good answer. If accept
// keeps the body it puts an empty one there.
func (c *Client) do(ctx context.Context, q request, accept func(*http.Response) error) error {
	payload := hash(q.body)
	var waited time.Duration
	for try := 1; ; try++ {
		begun := time.Now()
		err := c.send(ctx, &q, payload, accept)
		if err == nil || ctx.Err() != nil || !passing(err) {
			return err
		}
		if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
			waited += time.Since(begun)
		}
		if try > c.retries || try >= leastTries && waited >= patience {
			return err
		}
		d := min(mostPause, leastPause<<min(try-1, 10))
		d -= rand.N(d)
		if e, ok := errors.AsType[*Error](err); ok {
			d = max(d, min(e.retryAfter, patience-waited))
		}
		waited += d
		if ended := clock.Sleep(ctx, d); ended != nil {
			return fmt.Errorf("%w; before that: %w", ended, err)
		}
	}
}

// passing reports whether the same request may succeed later.
func passing(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.passing()
	}
	if _, ok := errors.AsType[*malformed](err); ok {
		return errors.Is(err, io.EOF) // The answer is empty.
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	return !errors.Is(err, http.ErrSchemeMismatch)
}

// send sends a request once. Each time it is signed with the time of then.
func (c *Client) send(ctx context.Context, q *request, payload string, accept func(*http.Response) error) error {
	u := &url.URL{
		Scheme: c.scheme, Host: c.host, Path: c.path + q.key, RawPath: escape(c.path+q.key, true),
		RawQuery: canonicalQuery(q.query),
	}
	r, err := http.NewRequestWithContext(ctx, q.method, u.String(), bytes.NewReader(q.body))
	if err != nil {
		return err
	}
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	r.Header.Set("X-Amz-Content-Sha256", payload)
	c.signer.sign(r, payload, c.now())
	r.Header.Set("User-Agent", "annals") // Not signed: proxies change it.
	a, err := c.http.Do(r)
	if err != nil {
		return err
	}
	// What was read of it counts: a body that breaks off fails the read.
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode < 200 || a.StatusCode > 299 {
		return c.refusal(a)
	}
	if accept == nil {
		return nil
	}
	return accept(a)
}

// decode understands an answer in XML. It can be an error, although its status says otherwise: the
// store had to begin it before the work was done.
func (c *Client) decode(a *http.Response, into any) error {
	text, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer+1))
	if err != nil {
		return err
	}
	if len(text) > maxAnswer {
		return &malformed{fmt.Errorf("the answer of the store has more than %d bytes", maxAnswer)}
	}
	if e := c.parseError(a, text); e.Code != "" {
		return e
	}
	if err := xml.Unmarshal(text, into); err != nil {
		return &malformed{fmt.Errorf("understand the answer of the store: %w", err)}
	}
	return nil
}

const (
	algorithm  = "AWS4-HMAC-SHA256"
	timeLayout = "20060102T150405Z"
)

// signer signs requests by AWS Signature Version 4: "Create a signed AWS API request" in the IAM
// User Guide, and "Authenticating Requests: Using the Authorization Header" in the Amazon S3 API
// Reference, which differs in that a path is escaped once and is not cleaned.
type signer struct{ key, secret, token, region, service string }

// sign signs all headers that a request has. Its path and its query are sent as they are, so they
// must be in canonical form; payload is the hash of its body.
func (s *signer) sign(r *http.Request, payload string, now time.Time) {
	at := now.UTC().Format(timeLayout)
	r.Header.Set("X-Amz-Date", at)
	if s.token != "" {
		r.Header.Set("X-Amz-Security-Token", s.token)
	}
	values := map[string]string{"host": r.Host}
	for name, v := range r.Header {
		values[strings.ToLower(name)] = strings.Join(strings.Fields(strings.Join(v, ",")), " ")
	}
	names := slices.Sorted(maps.Keys(values))
	var headers strings.Builder
	for _, name := range names {
		headers.WriteString(name + ":" + values[name] + "\n")
	}
	signed := strings.Join(names, ";")
	canonical := strings.Join([]string{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, headers.String(), signed, payload}, "\n")

	day := at[:len("20060102")]
	scope := strings.Join([]string{day, s.region, s.service, "aws4_request"}, "/")
	key := []byte("AWS4" + s.secret)
	for _, part := range strings.Split(scope, "/") {
		key = mac(key, part)
	}
	text := strings.Join([]string{algorithm, at, scope, hash([]byte(canonical))}, "\n")
	r.Header.Set("Authorization", fmt.Sprintf("%s Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		algorithm, s.key, scope, signed, hex.EncodeToString(mac(key, text))))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// canonicalQuery is a query in the order and the escapes that are signed.
func canonicalQuery(q url.Values) string {
	var all []string
	for name, values := range q {
		for _, v := range values {
			all = append(all, escape(name, false)+"="+escape(v, false))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "&")
}

// escape writes all bytes but letters, digits and -._~ as %XX; in a path, slashes stay.
func escape(s string, path bool) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0, path && c == '/':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Codes of errors, as the store spells them.
const (
	codeNoSuchBucket = "NoSuchBucket"
	codeNoSuchKey    = "NoSuchKey"
	codeNoSuchUpload = "NoSuchUpload"
	codeTooSkewed    = "RequestTimeTooSkewed"
)

// passingCodes are errors whose status alone does not say that the request may succeed later. The
// last ones say that it did not arrive as it was sent.
var passingCodes = map[string]bool{
	"InternalError": true, "OperationAborted": true, "RequestTimeout": true, "ServiceUnavailable": true, "SlowDown": true,
	"BadDigest": true, "IncompleteBody": true, "XAmzContentSHA256Mismatch": true,
}

const (
	maxError   = 64 << 10
	maxMessage = 500
	// maxSkew is how far clocks may be apart.
	maxSkew = 15 * time.Minute
)

// Error is a request that the store refused.
type Error struct {
	Code       string // empty if the store sent none
	Message    string
	StatusCode int
	RequestID  string // for the people who run the store
	Hint       string // what the user can do

	retryAfter time.Duration
	isHead     bool // the request was HEAD: its answer has no body
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Hint != "" {
		b.WriteString(e.Hint + ": ")
	}
	if e.Message != "" {
		b.WriteString(strings.TrimSuffix(e.Message, ".") + " (")
	}
	b.WriteString(strings.TrimSpace(fmt.Sprintf("status %d %s", e.StatusCode, cmp.Or(e.Code, http.StatusText(e.StatusCode)))))
	if e.RequestID != "" {
		b.WriteString(", request " + e.RequestID)
	}
	if e.Message != "" {
		b.WriteString(")")
	}
	return b.String()
}

func (e *Error) passing() bool {
	switch e.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusInsufficientStorage:
		return false
	}
	return e.StatusCode >= 500 || passingCodes[e.Code]
}

// Missing reports whether an error says that there is no such object, or no such upload.
func Missing(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case codeNoSuchKey, codeNoSuchUpload:
		return true
	}
	// Without a code another server may have said it, such as a proxy. HEAD never has one.
	return e.StatusCode == http.StatusNotFound && e.isHead
}

// refusal is the error of an answer.
func (c *Client) refusal(a *http.Response) *Error {
	// If the body breaks off, the status says enough.
	text, _ := io.ReadAll(io.LimitReader(a.Body, maxError))
	return c.parseError(a, text)
}

// parseError returns what an answer says of an error. The code is empty if it is not one.
func (c *Client) parseError(a *http.Response, text []byte) *Error {
	var x struct {
		XMLName            xml.Name `xml:"Error"`
		Code, Message      string
		RequestID          string `xml:"RequestId"`
		Region, ServerTime string
	}
	h := a.Header
	e := &Error{StatusCode: a.StatusCode, isHead: a.Request != nil && a.Request.Method == http.MethodHead, RequestID: oneLine(h.Get("X-Amz-Request-Id"))}
	e.retryAfter = c.retryAfter(h.Get("Retry-After"))
	region := h.Get("X-Amz-Bucket-Region")
	server, _ := http.ParseTime(h.Get("Date")) // Without one nothing is said of clocks.
	if xml.Unmarshal(text, &x) == nil {
		e.Code, e.Message = oneLine(x.Code), oneLine(x.Message)
		if x.RequestID != "" {
			e.RequestID = oneLine(x.RequestID)
		}
		if x.Region != "" {
			region = x.Region
		}
		if at, err := time.Parse(time.RFC3339, x.ServerTime); err == nil {
			server = at
		}
	} else if strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
		e.Message = oneLine(string(text))
	}
	skew := c.now().Sub(server).Round(time.Second)
	switch {
	case a.StatusCode < 300:
	case region != "" && region != c.signer.region:
		e.Hint = fmt.Sprintf("the bucket is in the region %s, not in %s: set AWS_REGION", oneLine(region), c.signer.region)
	case a.StatusCode < 400:
		e.Hint = "the store redirects"
		if u, err := url.Parse(h.Get("Location")); err == nil && u.Host != "" {
			e.Hint = "the store redirects to the endpoint " + oneLine(u.Host)
		}
	case a.StatusCode == http.StatusForbidden && !server.IsZero() && (e.Code == codeTooSkewed || skew.Abs() > maxSkew):
		way := "fast"
		if skew < 0 {
			way = "slow"
		}
		e.Hint = fmt.Sprintf("the clock of this machine is %v %s, compared with that of the store: set it", skew.Abs(), way)
	}
	return e
}

// retryAfter understands the header: seconds, or a date.
func (c *Client) retryAfter(text string) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return at.Sub(c.now())
	}
	return 0
}

// oneLine bounds a text of the store, and takes away what a terminal would obey.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s[:min(len(s), maxMessage)]), " ")
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}
