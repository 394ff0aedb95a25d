package httpapi

import (
	"net/http"
	"strings"

	"github.com/annalsdb/annals/web"
)

const webPrefix = "/web/"

// debuggerFiles are what the debugger of projections loads, below webPrefix.
var debuggerFiles = []string{
	"es/js/projections/v8/Prelude/Modules.js",
	"es/js/projections/v8/Prelude/Projections.js",
	"es/js/projections/v8/Prelude/1Prelude.js",
	"es/js/projections/es.projections.environment.js",
}

// cacheFiles is the Cache-Control of files that are the same for everybody.
var cacheFiles = []string{"max-age=3600, public"}

// debuggerFile answers with one of the files of the debugger.
func debuggerFile(x *exchange) error {
	b, err := web.Debugger.ReadFile(strings.TrimPrefix(x.r.URL.Path, webPrefix))
	if err != nil {
		return err
	}
	x.w.Header()[keyContentType] = typeJavaScript.contentType
	control := cacheFiles
	if x.s.opts.DisableHTTPCaching {
		control = cacheNever
	}
	x.w.Header()[keyCacheControl] = control
	x.send(http.StatusOK, b)
	return nil
}
