package http1

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// established is the state of a connection that neither side has ended (tcp_states.h).
const established = 1

// hasLeft reports whether the other side of a connection has ended it, also if what it sent before
// has not been read.
func hasLeft(c net.Conn) bool {
	for {
		upper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = upper.NetConn()
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	left := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		left = err == nil && info.State != established
	})
	return left && err == nil
}
