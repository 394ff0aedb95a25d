package httpapi_test

import (
	"testing"
	"testing/fstest"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

func TestWebDir(t *testing.T) {
	files := fstest.MapFS{
		"index.html": {Data: []byte("<p>page")}, "js/app.js": {Data: []byte("run()")}, "es/js/projections/v8/Prelude/Modules.js": {Data: []byte("theirs")},
	}
	n := newNode(t, func(o *httpapi.Options) { o.WebDir = files })
	n.get("/web", "").is(t, 302).has(t, "Location", base+"/web/index.html")
	for path, contentType := range map[string]string{
		"/web/": "text/html; charset=utf-8", "/web/index.html": "text/html; charset=utf-8", "/web/js/app.js": "text/javascript; charset=utf-8",
	} {
		// The page asks for a login.
		a := n.do("GET", path, "", with("Authorization", "Basic wrong"))
		a.is(t, 200).has(t, "Content-Type", contentType).has(t, "Cache-Control", "max-age=3600, public").has(t, "X-Content-Type-Options", "nosniff")
		check.Equal(t, a.header.Get("Content-Security-Policy"), "", path)
	}
	for _, path := range []string{"/web/js", "/web/js/", "/web/none.js", "/web/..%2Fsecret", "/web/%2Fetc%2Fpasswd", "/web/a%00b"} {
		n.get(path, "").is(t, 404)
	}
	n.do("POST", "/web/index.html", "", nil).is(t, 405)
	check.Equal(t, n.get("/web/js/app.js", "", "Range", "bytes=0-2").is(t, 206).body, "run", "a part")
	newNode(t).get("/web/js/app.js", "").is(t, 404)
	newNode(t, func(o *httpapi.Options) { o.WebDir, o.DisableAdminUI = files, true }).get("/web/index.html", "").is(t, 404)
}
