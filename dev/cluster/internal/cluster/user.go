package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/seatrial/seatrial/dev/cluster/internal/node"
)

// root tells whether this user may make namespaces and interfaces just so. Others get a user namespace, in which
// they may do all but join a network of their own to this machine's.
func root() bool { return os.Geteuid() == 0 }

// namespaces are those that the first process gets. Without root the network stays this machine's.
func namespaces() *syscall.SysProcAttr {
	flags := uintptr(syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC)
	if root() {
		return &syscall.SysProcAttr{Cloneflags: flags | syscall.CLONE_NEWNET}
	}
	return &syscall.SysProcAttr{
		Cloneflags:  flags | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
}

// advice is what to do if there are no namespaces to be had.
func advice() string {
	if root() {
		return ""
	}
	return ": without root this needs user namespaces, which this machine may forbid " +
		"(kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns): " +
		"use sudo, or set KUBECONFIG to use a cluster of your own"
}

// freeAddresses finds ports of the loopback address that nobody uses.
func freeAddresses() (node.Addresses, error) {
	var at node.Addresses
	var taken []net.Listener // until all are found, or one would be found twice
	defer func() {
		for _, listener := range taken {
			listener.Close()
		}
	}()
	for _, address := range []*netip.AddrPort{&at.APIServer, &at.Etcd, &at.EtcdPeers, &at.KWOK} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return node.Addresses{}, fmt.Errorf("find a free port: %w", err)
		}
		taken = append(taken, listener)
		*address = listener.Addr().(*net.TCPAddr).AddrPort()
	}
	return at, nil
}
