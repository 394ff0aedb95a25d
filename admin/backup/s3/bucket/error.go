package bucket

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

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
