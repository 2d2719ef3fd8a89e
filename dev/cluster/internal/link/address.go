// Package link joins a cluster's network namespace to this machine by a pair of interfaces.
package link

import (
	"errors"
	"net/netip"
)

// ranges are private blocks that few networks use; the later ones serve where a VPN claims all of the first.
var ranges = []netip.Prefix{
	netip.MustParsePrefix("10.231.0.0/16"),
	netip.MustParsePrefix("172.30.0.0/16"),
	netip.MustParsePrefix("192.168.231.0/24"),
}

// ErrNoAddress says that this machine's interfaces and routes cover every block that a cluster could take.
var ErrNoAddress = errors.New("no free /30 block in 10.231.0.0/16, 172.30.0.0/16 or 192.168.231.0/24: " +
	"every one overlaps an interface or a route of this machine (see `ip addr` and `ip route`)")

// linkBits is the smallest block that holds two hosts.
const linkBits = 30

// pick returns the first block that overlaps nothing of what is taken. Default routes do not count.
func pick(taken []netip.Prefix) (netip.Prefix, error) {
	for _, within := range ranges {
		for block := netip.PrefixFrom(within.Addr(), linkBits); within.Contains(block.Addr()); block = next(block) {
			if free(block, taken) {
				return block, nil
			}
		}
	}
	return netip.Prefix{}, ErrNoAddress
}

func free(block netip.Prefix, taken []netip.Prefix) bool {
	for _, other := range taken {
		if other.Bits() > 0 && other.Overlaps(block) {
			return false
		}
	}
	return true
}

// next is the block that follows.
func next(block netip.Prefix) netip.Prefix {
	address := block.Addr()
	for range 1 << (32 - linkBits) {
		address = address.Next()
	}
	return netip.PrefixFrom(address, block.Bits())
}
