package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// insideName is the name of the pair's end in the cluster's namespace.
const insideName = "uplink"

// Link is the pair: one end here, the other in the cluster.
type Link struct {
	Interface string       // the end on this machine
	Outside   netip.Prefix // its address
	Inside    netip.Prefix // the cluster's
}

// Create makes the pair between this machine and the network namespace of the process pid, and gives this end its
// address; Join does it for the other end. The caller must hold the lock of all clusters, or two may choose the same.
func Create(pid int) (Link, error) {
	taken, err := takenHere()
	if err != nil {
		return Link{}, err
	}
	block, err := pick(taken)
	if err != nil {
		return Link{}, err
	}
	outside := block.Addr().Next()
	b := block.Addr().As4()
	pair := Link{
		// Named by the address, which is unique among clusters, since names are limited to 15 bytes.
		Interface: fmt.Sprintf("seatrial%02x%02x%02x", b[1], b[2], b[3]),
		Outside:   netip.PrefixFrom(outside, linkBits),
		Inside:    netip.PrefixFrom(outside.Next(), linkBits),
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = pair.Interface
	veth := &netlink.Veth{LinkAttrs: attributes, PeerName: insideName, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(veth); err != nil {
		return Link{}, fmt.Errorf("make the interface %s: %w", pair.Interface, err)
	}
	if err := up(veth, pair.Outside); err != nil {
		return Link{}, errors.Join(err, Remove(pair.Interface))
	}
	return pair, nil
}

// Join brings up the loopback interface and the pair's other end; it is called in the cluster's namespace. A packet
// needs a way out before kube-proxy's rules see it: those to the addresses of Services are sent into the pair.
func Join(inside, services netip.Prefix) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("bring up the loopback interface: %w", err)
	}
	end, err := netlink.LinkByName(insideName)
	if err != nil {
		return fmt.Errorf("find the interface %s: %w", insideName, err)
	}
	if err := up(end, inside); err != nil {
		return err
	}
	if err := netlink.RouteAdd(&netlink.Route{
		LinkIndex: end.Attrs().Index,
		Scope:     netlink.SCOPE_LINK,
		Dst:       ipNet(services),
		Src:       inside.Addr().AsSlice(),
	}); err != nil {
		return fmt.Errorf("route the addresses of Services: %w", err)
	}
	return nil
}

// Remove deletes the pair. The kernel does so too, a moment after the cluster's last process; that it is already
// gone is no error.
func Remove(name string) error {
	end, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(end)
	}
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the interface %s: %w", name, err)
	}
	return nil
}

func up(end netlink.Link, address netip.Prefix) error {
	name := end.Attrs().Name
	if err := netlink.AddrAdd(end, &netlink.Addr{IPNet: ipNet(address)}); err != nil {
		return fmt.Errorf("give %s the address %s: %w", name, address, err)
	}
	if err := netlink.LinkSetUp(end); err != nil {
		return fmt.Errorf("bring up the interface %s: %w", name, err)
	}
	return nil
}

// takenHere lists what this machine's interfaces and routes cover.
func takenHere() ([]netip.Prefix, error) {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	// All tables: a VPN likes to have one of its own.
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list the routes of this machine: %w", err)
	}
	var taken []netip.Prefix
	for _, address := range addresses {
		taken = append(taken, prefix(address.IPNet))
	}
	for _, route := range routes {
		if route.Dst != nil {
			taken = append(taken, prefix(route.Dst))
		}
	}
	return taken, nil
}

func prefix(n *net.IPNet) netip.Prefix {
	address, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(address.Unmap(), bits)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}
