package bucket

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

const nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// TestSignPublished: the signatures are those of the published test suite of Signature Version 4,
// and of the examples in the S3 API Reference.
func TestSignPublished(t *testing.T) {
	suite := signer{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "", "us-east-1", "service"}
	suiteTime := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	s3 := signer{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", "us-east-1", "s3"}
	s3Time := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	const suiteHost, s3Host = "example.amazonaws.com", "examplebucket.s3.amazonaws.com"
	const token = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
	withToken := suite
	withToken.token = token
	for _, c := range []struct {
		name                     string
		s                        signer
		at                       time.Time
		method, host, path       string
		query                    url.Values
		header                   map[string]string
		payload, signed, expects string
	}{
		{"get-vanilla", suite, suiteTime, "GET", suiteHost, "/", nil, nil, nothing,
			"host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		{"get-vanilla-query-order-key-case", suite, suiteTime, "GET", suiteHost, "/",
			url.Values{"Param2": {"value2"}, "Param1": {"value1"}}, nil, nothing,
			"host;x-amz-date", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
		{"get-vanilla-empty-query-key", suite, suiteTime, "GET", suiteHost, "/", url.Values{"Param1": {"value1"}}, nil, nothing,
			"host;x-amz-date", "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
		{"get-utf8", suite, suiteTime, "GET", suiteHost, "/\u1234", nil, nil, nothing,
			"host;x-amz-date", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
		{"get-unreserved", suite, suiteTime, "GET", suiteHost, "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", nil, nil, nothing,
			"host;x-amz-date", "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
		{"get-header-value-trim", suite, suiteTime, "GET", suiteHost, "/", nil,
			map[string]string{"My-Header1": " value1", "My-Header2": ` "a   b   c"`}, nothing,
			"host;my-header1;my-header2;x-amz-date", "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
		{"post-vanilla", suite, suiteTime, "POST", suiteHost, "/", nil, nil, nothing,
			"host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		{"post-sts-header-before", withToken, suiteTime, "POST", suiteHost, "/", nil, nil, nothing,
			"host;x-amz-date;x-amz-security-token", "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
		{"GET object", s3, s3Time, "GET", s3Host, "/test.txt", nil,
			map[string]string{"Range": "bytes=0-9", "X-Amz-Content-Sha256": nothing}, nothing,
			"host;range;x-amz-content-sha256;x-amz-date", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"PUT object", s3, s3Time, "PUT", s3Host, "/test$file.text", nil,
			map[string]string{
				"Date": "Fri, 24 May 2013 00:00:00 GMT", "X-Amz-Storage-Class": "REDUCED_REDUNDANCY",
				"X-Amz-Content-Sha256": hash([]byte("Welcome to Amazon S3.")),
			}, hash([]byte("Welcome to Amazon S3.")),
			"date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
		{"GET bucket lifecycle", s3, s3Time, "GET", s3Host, "/", url.Values{"lifecycle": {""}},
			map[string]string{"X-Amz-Content-Sha256": nothing}, nothing,
			"host;x-amz-content-sha256;x-amz-date", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"list objects", s3, s3Time, "GET", s3Host, "/", url.Values{"prefix": {"J"}, "max-keys": {"2"}},
			map[string]string{"X-Amz-Content-Sha256": nothing}, nothing,
			"host;x-amz-content-sha256;x-amz-date", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := &url.URL{Scheme: "https", Host: c.host, Path: c.path, RawPath: escape(c.path, true), RawQuery: canonicalQuery(c.query)}
			r, err := http.NewRequestWithContext(t.Context(), c.method, u.String(), nil)
			check.Must(t, err)
			for name, value := range c.header {
				r.Header.Set(name, value)
			}
			c.s.sign(r, c.payload, c.at)
			got := r.Header.Get("Authorization")
			if !strings.HasSuffix(got, ", SignedHeaders="+c.signed+", Signature="+c.expects) {
				t.Error(got)
			}
		})
	}
}

func TestEscape(t *testing.T) {
	for _, c := range []struct{ in, path, query string }{
		{"a/b", "a/b", "a%2Fb"},
		{"a b+c", "a%20b%2Bc", "a%20b%2Bc"},
		{"100%/ü~*", "100%25/%C3%BC~%2A", "100%25%2F%C3%BC~%2A"},
		{"a//../\x00\xff", "a//../%00%FF", "a%2F%2F..%2F%00%FF"},
	} {
		if path, query := escape(c.in, true), escape(c.in, false); path != c.path || query != c.query {
			t.Errorf("%q: %s, %s", c.in, path, query)
		}
	}
}
