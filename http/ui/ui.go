// Package ui serves the web interface, that of a folder, and what the debugger of projections
// loads.
package ui

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/http1"
	"github.com/annalsdb/annals/web"
)

// Handlers answer requests for the files of web interfaces.
type Handlers struct {
	Folder fs.FS // nil: there is none
	Own    fs.FS // nil: the files that are built in
}

const (
	UIPrefix    = "/ui/"
	uiPage      = "index.html"
	assetPrefix = "a/"
	// assetsPlace stands in index.html for the folder of the assets.
	assetsPlace = "@assets@"
)

// uiAnswer has the headers of the files of our own interface. Nothing runs but its modules, nothing
// is loaded from elsewhere, and no text becomes markup.
var uiAnswer = http1.NewFields(
	"Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; base-uri 'none'; "+
		"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"X-Content-Type-Options", "nosniff",
	"Referrer-Policy", "no-referrer",
	"Cross-Origin-Opener-Policy", "same-origin",
)

var (
	cacheAssets = []string{"max-age=31536000, public, immutable"}
	varyCoding  = []string{"Accept-Encoding"}
)

// uiFile is a file of the interface, ready to be sent.
type uiFile struct {
	contentType string
	plain       []byte
	gzip        []byte // nil: compressing does not pay
	etag        string
}

// uiTree is the interface by path: index.html, and the assets below a folder whose
// name is a hash of all of them, so that the files of two versions never mix.
type uiTree map[string]*uiFile

// builtInUI is the interface that the binary carries. Every node of a process shares it.
var builtInUI = sync.OnceValues(func() (uiTree, error) {
	files, err := fs.Sub(web.Static, "static")
	if err != nil {
		return nil, err
	}
	return newUITree(files)
})

func newUITree(files fs.FS) (uiTree, error) {
	content := map[string][]byte{}
	hash := sha256.New()
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		content[name] = b
		fmt.Fprintf(hash, "%s %d\n", name, len(b))
		hash.Write(b)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the web interface: %w", err)
	}
	folder := assetPrefix + fmt.Sprintf("%x", hash.Sum(nil)[:8])
	tree := uiTree{}
	for name, b := range content {
		if name == uiPage {
			b = bytes.ReplaceAll(b, []byte(assetsPlace), []byte(folder))
		} else {
			name = folder + "/" + name
		}
		if tree[name], err = newUIFile(name, b); err != nil {
			return nil, err
		}
	}
	if tree[uiPage] == nil {
		return nil, errors.New("read the web interface: it has no " + uiPage)
	}
	return tree, nil
}

func newUIFile(name string, content []byte) (*uiFile, error) {
	f := &uiFile{contentType: webType(name), plain: content, etag: fmt.Sprintf(`"%x"`, sha256.Sum256(content))[:18] + `"`}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if packed.Len() < len(content)*9/10 {
		f.gzip = packed.Bytes()
	}
	return f, nil
}

// ToUI sends a browser to our own interface.
func ToUI(_ context.Context, x *request.Request) error {
	return x.Moved(string(x.Origin.Prefix()) + UIPrefix)
}

// File answers with a file of our own interface.
func (u *Handlers) File(_ context.Context, x *request.Request) error {
	load, control := builtInUI, cacheAssets
	if u.Own != nil { // While it is written: what the folder holds at this moment.
		load, control = func() (uiTree, error) { return newUITree(u.Own) }, caching.Nothing
	}
	tree, err := load()
	if err != nil {
		return err
	}
	name := x.Route.Argument
	if name == "" {
		name = uiPage
	}
	if name == uiPage && u.Own == nil {
		control = caching.Probe
	}
	f := tree[name]
	if f == nil {
		return problem.NoRoute
	}
	http1.SetFields(x.R.Context(), x.W.Header(), uiAnswer)
	h, body := x.W.Header(), f.plain
	h[request.KeyContentType], h[caching.KeyControl], h[caching.KeyVary] = []string{f.contentType}, control, varyCoding
	etag := f.etag
	if f.gzip != nil && acceptsGzip(x.R.Header) {
		body, etag = f.gzip, strings.TrimSuffix(etag, `"`)+`-gzip"`
		h["Content-Encoding"] = []string{"gzip"}
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
		x.R.Header.Del("Range") // Ranges of a compressed file are useless to clients.
	}
	h[caching.KeyETag] = []string{etag}
	http.ServeContent(x.W, x.R, "", time.Time{}, bytes.NewReader(body))
	return nil
}

// acceptsGzip reports whether a client takes compressed files. A weight of 0 is the
// only one that matters.
func acceptsGzip(h http.Header) bool {
	for _, list := range h["Accept-Encoding"] {
		for coding := range strings.SplitSeq(list, ",") {
			name, weight, _ := strings.Cut(coding, ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") {
				q, has := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
				return !has || strings.Trim(q, "0.") != ""
			}
		}
	}
	return false
}

// Home sends a browser to the web interface.
func Home(_ context.Context, x *request.Request) error {
	return x.Moved(string(x.Origin.URI()) + "/web/index.html")
}
