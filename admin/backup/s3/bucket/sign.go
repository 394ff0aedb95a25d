package bucket

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

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
