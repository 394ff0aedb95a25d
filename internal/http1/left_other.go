//go:build !linux

package http1

import "net"

// hasLeft cannot be known here while there is something to read.
func hasLeft(net.Conn) bool { return false }

// untaken cannot be known here.
func untaken(net.Conn) int { return 0 }
