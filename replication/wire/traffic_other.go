//go:build !linux

package wire

import "net"

// pending is not known on this system.
func pending(net.Conn) (send, received int64) { return 0, 0 }
