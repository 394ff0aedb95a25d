package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/annalsdb/annals/replication/wire"
)

// advertised finds the address that other nodes get: memberlist knows addresses only, so a host
// name is looked up, once. Without a host, it takes the first address of this machine.
func advertised(ctx context.Context, port *wire.Port) (netip.AddrPort, error) {
	address := port.Advertised()
	host, number, err := splitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("gossip: address to advertise: %w", err)
	}
	addresses, err := lookup(ctx, port, host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("gossip: address to advertise: %w", err)
	}
	if !addresses[0].IsUnspecified() {
		return netip.AddrPortFrom(addresses[0], number), nil
	}
	ip, err := MachineAddress()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("gossip: listening at %s: %w", address, err)
	}
	return netip.AddrPortFrom(ip, number), nil
}

// MachineAddress is the address at which others dial a node that listens at all addresses of its
// machine.
func MachineAddress() (netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("address to advertise: %w", err)
	}
	for _, a := range found {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap().IsGlobalUnicast() && ip.Unmap().Is4() {
				return ip.Unmap(), nil
			}
		}
	}
	return netip.Addr{}, errors.New("there is no address to advertise: give one")
}

// maxAnswers is how many addresses of one name are looked at.
const maxAnswers = 16

// lookup returns the addresses of a host, at least one, IPv4 first.
func lookup(ctx context.Context, port *wire.Port, host string) ([]netip.Addr, error) {
	found, err := port.Lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the name %s has no address", host)
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	slices.SortStableFunc(found, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return found[:min(len(found), maxAnswers)], nil
}
