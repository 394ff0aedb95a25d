package httpapi

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/annalsdb/annals/http/http1"
	"github.com/annalsdb/annals/web"
)

// folderAnswer is what files of WebDir carry: their scripts are not ours to restrict.
var folderAnswer = http1.NewFields("X-Content-Type-Options", "nosniff")

// webTypes are the media types of the files of a web interface, whatever the machine says of them.
var webTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".json": "application/json",
	".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".woff": "font/woff", ".woff2": "font/woff2",
}

func webType(name string) string {
	ext := path.Ext(name)
	if t, ok := webTypes[ext]; ok {
		return t
	}
	if t := mime.TypeByExtension(ext); t != "" {
		return t
	}
	return "application/octet-stream"
}

// webFolder is a row for the files of WebDir. They are for everybody, as the page that asks for a
// login is.
func (u *webHandlers) webFolder() row {
	r := at(webPrefix+"{path...}", look(nil, mayAnyone, u.serveWebDir))
	r.open = true
	return r
}

// serveWebDir answers with a file of the folder that holds a web interface. Folders are not listed.
func (u *webHandlers) serveWebDir(_ context.Context, x *exchange) error {
	name := x.route.argument
	if name == "" {
		name = "index.html"
	}
	f, err := u.folder.Open(name)
	if err != nil {
		return problemNoRoute // Also what leads out of the folder.
	}
	defer func() { _ = f.Close() }() // It was read.
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return problemNoRoute
	}
	content, ok := f.(io.ReadSeeker)
	if !ok {
		return fmt.Errorf("serve %s of the web interface: the file cannot seek", name)
	}
	http1.SetFields(x.r.Context(), x.w.Header(), folderAnswer)
	h := x.w.Header()
	delete(h, "Content-Security-Policy") // Where it stands in the map, as with HTTP/2.
	h[keyContentType], h[keyCacheControl] = []string{webType(name)}, cacheFiles
	if x.node.disableCaching {
		h[keyCacheControl] = cacheNever
	}
	http.ServeContent(x.w, x.r, "", info.ModTime(), content)
	return nil
}

const webPrefix = "/web/"

// debuggerFiles are the files that the debugger of projections loads, below webPrefix.
var debuggerFiles = []string{
	"es/js/projections/v8/Prelude/Modules.js",
	"es/js/projections/v8/Prelude/Projections.js",
	"es/js/projections/v8/Prelude/1Prelude.js",
	"es/js/projections/es.projections.environment.js",
}

// cacheFiles is the Cache-Control of files that are the same for everybody.
var cacheFiles = []string{"max-age=3600, public"}

// debuggerFile answers with one of the files of the debugger.
func debuggerFile(_ context.Context, x *exchange) error {
	b, err := web.Debugger.ReadFile(strings.TrimPrefix(x.r.URL.Path, webPrefix))
	if err != nil {
		return err
	}
	x.w.Header()[keyContentType] = typeJavaScript.contentType
	control := cacheFiles
	if x.node.disableCaching {
		control = cacheNever
	}
	x.w.Header()[keyCacheControl] = control
	x.send(http.StatusOK, b)
	return nil
}
