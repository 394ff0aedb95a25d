package testkit

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

var authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})$`)

// checkRequest judges the signature of a request and the checksums of its body, as stores do. The
// code is that of an error; it is empty if there is none.
func checkRequest(r *http.Request, body []byte, now time.Time) (status int, code string) {
	m := authorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil {
		return http.StatusForbidden, "AccessDenied"
	}
	key, day, region, signed, signature := m[1], m[2], m[3], strings.Split(m[4], ";"), m[5]
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	payload := r.Header.Get("X-Amz-Content-Sha256")
	switch {
	case key != ObjectStoreKey:
		return http.StatusForbidden, "InvalidAccessKeyId"
	case region != ObjectStoreRegion:
		return http.StatusBadRequest, "AuthorizationHeaderMalformed"
	case err != nil || at.Format("20060102") != day:
		return http.StatusForbidden, "AccessDenied"
	case now.Sub(at).Abs() > 15*time.Minute:
		return http.StatusForbidden, "RequestTimeTooSkewed"
	}
	// These must be signed: each changes what the request does.
	for name := range r.Header {
		name = strings.ToLower(name)
		if (strings.HasPrefix(name, "x-amz-") || name == "content-md5" || name == "range") && !slices.Contains(signed, name) {
			return http.StatusForbidden, "AccessDenied"
		}
	}
	if !slices.Contains(signed, "host") || !slices.IsSorted(signed) {
		return http.StatusForbidden, "SignatureDoesNotMatch"
	}
	if signature != objectSignature(r, at, signed, payload) {
		return http.StatusForbidden, "SignatureDoesNotMatch"
	}
	if payload != fmt.Sprintf("%x", sha256.Sum256(body)) {
		return http.StatusBadRequest, "XAmzContentSHA256Mismatch"
	}
	sum := md5.Sum(body)
	if want := r.Header.Get("Content-Md5"); want != "" && want != base64.StdEncoding.EncodeToString(sum[:]) {
		return http.StatusBadRequest, "BadDigest"
	}
	return 0, ""
}

// objectSignature is what a store computes from what it received: it knows nothing of how the
// client wrote path and query, and writes them itself.
func objectSignature(r *http.Request, at time.Time, signed []string, payload string) string {
	write := func(s string) string { // A query escape that leaves only unreserved characters.
		return strings.NewReplacer("+", "%20", "%7E", "~").Replace(url.QueryEscape(s))
	}
	var query []string
	for name, values := range r.URL.Query() {
		for _, v := range values {
			query = append(query, write(name)+"="+write(v))
		}
	}
	slices.Sort(query)
	text := fmt.Sprintf("%s\n%s\n%s\n", r.Method, strings.ReplaceAll(write(r.URL.Path), "%2F", "/"), strings.Join(query, "&"))
	for _, name := range signed {
		value := r.Host
		if name != "host" {
			value = strings.Join(r.Header.Values(name), ",")
		}
		text += name + ":" + value + "\n"
	}
	text += "\n" + strings.Join(signed, ";") + "\n" + payload
	key := []byte("AWS4" + ObjectStoreSecret)
	keyed := func(text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	for _, part := range []string{at.Format("20060102"), ObjectStoreRegion, "s3", "aws4_request"} {
		key = keyed(part)
	}
	return fmt.Sprintf("%x", keyed(fmt.Sprintf("AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n%x",
		at.Format("20060102T150405Z"), at.Format("20060102"), ObjectStoreRegion, sha256.Sum256([]byte(text)))))
}
