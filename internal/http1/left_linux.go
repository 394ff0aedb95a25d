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
	left := false
	return control(c, func(fd int) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		left = err == nil && info.State != established
	}) && left
}

// untaken is how many of the written bytes the other side has not taken from the system.
func untaken(c net.Conn) (bytes int) {
	control(c, func(fd int) {
		if n, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ); err == nil {
			bytes = n
		}
	})
	return bytes
}

// control calls f with the socket of a connection, if it has one.
func control(c net.Conn, f func(fd int)) bool {
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
	return raw.Control(func(fd uintptr) { f(int(fd)) }) == nil
}
