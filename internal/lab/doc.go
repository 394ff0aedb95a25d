// Package lab runs programs as the hosts of a small network and breaks things
// around them: links between hosts, processes and disks. It knows
// nothing of the programs that it runs.
//
// A host is a network namespace with an address of its own, a folder, and the
// processes started on it. Every host has one TUN device, and this process has
// one more in its own namespace, so that it reaches all hosts as their client.
// What the kernels of the hosts send arrives here as IP packets, and a switch
// in this process hands each packet to the device that owns its destination:
//
//	host 0: 10.x.y.1 ──┐                 ┌── 10.x.y.2: host 1
//	host 2: 10.x.y.3 ──┤ switch: a link  ├── 10.x.y.4: host 3
//	                   │ for each of the │
//	client: 10.x.y.254 ┘ directed pairs  └── ...
//
// A directed link can be cut, delayed, made lossy, and limited in bandwidth.
// The two directions between a pair are two links. Only IPv4 passes.
//
// What is promised about a change of a link: packets sent after the call
// returned meet the new rule. A packet that was on its way may meet the old one.
//
// Nothing survives this process. Namespaces have no names: they vanish with the
// threads and processes in them, devices with their file descriptors, and
// processes are killed with this one. What the kernel does not take away by
// itself, mounts of limited disks and folders, carries the id of this process in its
// name, and the next New of any process removes what belongs to dead ones.
//
// # Without privileges
//
// Namespaces and TUN devices need root (CAP_NET_ADMIN and CAP_SYS_ADMIN) and
// /dev/net/tun. Where they are not allowed the hosts are loopback addresses,
// 127.x.y.1 and up, and much is missing:
//
//   - Links cannot be changed: [Lab.NoLinks] says why, and what is asked of a
//     [Link] returns [ErrNoLinks].
//   - A host's programs must listen on the host's address themselves, and what they
//     dial without binding a local address comes from 127.0.0.1.
//   - A program that listens on all addresses takes that port on all hosts.
//   - Limited disks need the right to mount.
//
// Starting, killing and pausing processes work as ever.
//
// On systems other than Linux New returns [ErrNeedsLinux].
package lab
