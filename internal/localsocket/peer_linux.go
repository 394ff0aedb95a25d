package localsocket

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUID is the user id of the process at the other end, -1 when it is not known.
func peerUID(c *net.UnixConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1
	}
	uid := -1
	err = raw.Control(func(fd uintptr) {
		if cred, e := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); e == nil {
			uid = int(cred.Uid)
		}
	})
	if err != nil {
		return -1
	}
	return uid
}
