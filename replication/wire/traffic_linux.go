package wire

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// pending is how many bytes the system holds of what was written to a connection
// and of what came and was not read.
func pending(c net.Conn) (send, received int64) {
	raw, ok := c.(syscall.Conn)
	if !ok {
		return 0, 0
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return 0, 0 // closed
	}
	_ = control.Control(func(fd uintptr) {
		// A connection that is being closed has nothing pending.
		if n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			send = int64(n)
		}
		if n, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ); err == nil {
			received = int64(n)
		}
	})
	return send, received
}
