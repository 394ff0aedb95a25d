//go:build !linux

package http1

import "net"

// hasLeft cannot be known here while there is something to read.
func hasLeft(net.Conn) bool { return false }
