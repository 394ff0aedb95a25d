package ui

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/http1"
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

// FolderFile answers with a file of the folder that holds a web interface, which is
// for everybody, as the page that asks for a login is. Folders are not listed.
func (u *Handlers) FolderFile(_ context.Context, x *request.Request) error {
	name := x.Route.Argument
	if name == "" {
		name = "index.html"
	}
	f, err := u.Folder.Open(name)
	if err != nil {
		return problem.NoRoute // Also what leads out of the folder.
	}
	defer func() { _ = f.Close() }() // It was read.
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return problem.NoRoute
	}
	content, ok := f.(io.ReadSeeker)
	if !ok {
		return fmt.Errorf("serve %s of the web interface: the file cannot seek", name)
	}
	http1.SetFields(x.R.Context(), x.W.Header(), folderAnswer)
	h := x.W.Header()
	delete(h, "Content-Security-Policy") // Where it stands in the map, as with HTTP/2.
	h[request.KeyContentType] = []string{webType(name)}
	x.Copies().Last(cacheFiles)
	http.ServeContent(x.W, x.R, "", info.ModTime(), content)
	return nil
}

// cacheFiles is the Cache-Control of files that are the same for everybody.
var cacheFiles = []string{"max-age=3600, public"}

// WebPrefix is where a web interface is served.
const WebPrefix = "/web/"

// DebuggerFiles are the files that the debugger of projections loads, below webPrefix.
var DebuggerFiles = []string{
	"es/js/projections/v8/Prelude/Modules.js",
	"es/js/projections/v8/Prelude/Projections.js",
	"es/js/projections/v8/Prelude/1Prelude.js",
	"es/js/projections/es.projections.environment.js",
}

// DebuggerFile answers with one of the files of the debugger.
func DebuggerFile(_ context.Context, x *request.Request) error {
	b, err := web.Debugger.ReadFile(strings.TrimPrefix(x.R.URL.Path, WebPrefix))
	if err != nil {
		return err
	}
	x.W.Header()[request.KeyContentType] = media.JavaScript.ContentType
	x.Copies().Last(cacheFiles)
	x.Send(http.StatusOK, b)
	return nil
}
