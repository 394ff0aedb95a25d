package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

func TestWebUI(t *testing.T) {
	n := newNode(t)
	n.get("/", "").is(t, 302).has(t, "Location", base+"/web/index.html")
	n.get("/ui", "").is(t, 302).has(t, "Location", "/ui/")
	n.do("GET", "/ui", "", with("X-Forwarded-Prefix", "/p")).is(t, 302).has(t, "Location", "/p/ui/")
	// The page asks for a login.
	page := n.do("GET", "/ui/", "", with("Authorization", "Basic wrong")).is(t, 200)
	page.has(t, "Content-Type", "text/html; charset=utf-8").has(t, "Cache-Control", "no-cache").has(t, "X-Content-Type-Options", "nosniff").has(t, "Referrer-Policy", "no-referrer").
		has(t, "Cross-Origin-Opener-Policy", "same-origin").has(t, "Vary", "Accept-Encoding")
	if csp := page.header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; script-src 'self';") || !strings.HasSuffix(csp, "trusted-types 'none'") || strings.Contains(csp, "unsafe") {
		t.Errorf("the policy is %q", csp)
	}
	check.Equal(t, n.get("/web/index.html", "").is(t, 200).body, page.body, "the same at /web")
	n.get("/ui/", "", "If-None-Match", page.header.Get("ETag")).is(t, 304)
	assets := regexp.MustCompile(`"(a/[0-9a-f]{16}/[^"]+)"`).FindAllStringSubmatch(page.body, -1)
	if len(assets) < 10 {
		t.Fatalf("the page loads %v", assets)
	}
	for _, m := range assets {
		plain := n.get("/ui/"+m[1], "").is(t, 200).has(t, "Cache-Control", "max-age=31536000, public, immutable").has(t, "Content-Encoding", "")
		packed := n.get("/web/"+m[1], "", "Accept-Encoding", "br, gzip").is(t, 200)
		if packed.header.Get("Content-Encoding") == "gzip" {
			r := check.Value(gzip.NewReader(strings.NewReader(packed.body))).Must(t)
			b := check.Value(io.ReadAll(r)).Must(t)
			check.Equal(t, string(b), plain.body, m[1])
		}
		n.get("/ui/"+m[1], "", "Accept-Encoding", "gzip;q=0").is(t, 200).has(t, "Content-Encoding", "")
	}
	for _, path := range []string{"/ui/none", "/ui/a/0000000000000000/app.css", "/ui/app.css", "/ui/..%2Finfo", "/web/app.css"} {
		n.get(path, "").is(t, 404)
	}
	n.do("POST", "/ui/", "", nil).is(t, 405)
	if bytes.Contains([]byte(page.body), []byte("@assets@")) {
		t.Error("the page names no folder of its assets")
	}

	newNode(t, func(o *httpapi.Options) { o.DisableAdminUI = true }).get("/ui/", "").is(t, 404)
	theirs := fstest.MapFS{"index.html": {Data: []byte("theirs")}}
	other := newNode(t, func(o *httpapi.Options) { o.WebDir = theirs })
	check.Equal(t, other.get("/ui/", "").is(t, 200).body, page.body, "ours beside a folder")
	check.Equal(t, other.get("/web/index.html", "").is(t, 200).body, "theirs", "the folder")
}

// TestWebUIFromFolder serves the interface as the folder has it at each request.
func TestWebUIFromFolder(t *testing.T) {
	files := fstest.MapFS{"index.html": {Data: []byte(`<link href="@assets@/app.css">`)}, "app.css": {Data: []byte("one")}}
	n := newNode(t, func(o *httpapi.Options) { o.UIDir = files })
	asset := func() string {
		page := n.get("/ui/", "").is(t, 200).has(t, "Cache-Control", "no-store")
		_, rest, _ := strings.Cut(page.body, `href="`)
		path, _, _ := strings.Cut(rest, `"`)
		return n.get("/ui/"+path, "").is(t, 200).has(t, "Cache-Control", "no-store").body
	}
	check.Equal(t, asset(), "one", "before")
	files["app.css"] = &fstest.MapFile{Data: []byte("two")}
	check.Equal(t, asset(), "two", "after")
}
