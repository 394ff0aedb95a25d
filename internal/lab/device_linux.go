package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// headerSize is the size of a struct virtio_net_hdr, which precedes each
	// packet. The switch passes it on as it is. By that a checksum that the
	// sending kernel left out is not missed by the receiving one: on this way
	// nothing can be damaged, and two passes over all data are saved.
	headerSize = 10
	// mtu is large because every packet costs two system calls.
	mtu       = 65000
	maxPacket = 65535
	// deviceQueue is how many packets wait in the kernel for the switch.
	deviceQueue = 2048
)

// openDevice makes a TUN device in the network namespace of the calling thread,
// with an address in a network of 256. The device vanishes with its file. A name that is in
// use is EBUSY.
func openDevice(name string, addr netip.Addr) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	if err := configureDevice(fd, name, addr); err != nil {
		return nil, errors.Join(fmt.Errorf("set up the device %s with %s: %w", name, addr, err), unix.Close(fd))
	}
	// After it is attached, so that the runtime can poll it.
	return os.NewFile(uintptr(fd), name), nil
}

func configureDevice(fd int, name string, addr netip.Addr) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_TUN_EXCL)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM); err != nil {
		return fmt.Errorf("leave out checksums: %w", err)
	}
	ip, mask := addr.As4(), [4]byte{255, 255, 255, 0}
	return configure(name, []setting{
		{"queue length", unix.SIOCSIFTXQLEN, func(r *unix.Ifreq) error { r.SetUint32(deviceQueue); return nil }},
		{"mtu", unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(mtu); return nil }},
		{"address", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(ip[:]) }},
		{"netmask", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(mask[:]) }},
		{"up", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
	})
}

// raiseLoopback brings up the loopback device of a new namespace.
func raiseLoopback() error {
	return configure("lo", []setting{
		{"up", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
	})
}

// setting is one property of a device and how the kernel gets it.
type setting struct {
	what    string
	request uint
	fill    func(*unix.Ifreq) error
}

func configure(name string, settings []setting) (err error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(socket)) }()
	for _, s := range settings {
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := s.fill(request); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		if err := unix.IoctlIfreq(socket, s.request, request); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}
