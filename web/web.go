// Package web holds the files that browsers load from a node.
package web

import "embed"

// Static is the web interface, below static/: index.html, one style sheet and plain
// modules of JavaScript. static/vendor is made by scripts/ui-vendor.sh.
//
//go:embed static
var Static embed.FS

// Debugger has the files that the projection debugger of the official web interface loads, by path
// below /web/. It runs the handlers of a projection in the browser, event by event.
//
//go:embed es
var Debugger embed.FS
