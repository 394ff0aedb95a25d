// Package web holds the files that browsers load from a node.
package web

import "embed"

// Debugger is what the projection debugger of the web interface loads, by path
// below /web/. It runs the handlers of a projection in the browser, event by event.
//
//go:embed es
var Debugger embed.FS
