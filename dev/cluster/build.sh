#!/bin/sh
# Builds seatrial-cluster, Kubernetes included, and beside it CoreDNS: dev/cluster/build.sh OUT
#
# Kubernetes tells its version only if it is stamped with it: unstamped, clients see v0.0.0.
# The version is the one that go.mod asks for. A cold build takes about 15 minutes of CPU time, a cached one seconds.
set -eu

if [ $# -ne 1 ]; then
	echo "usage: $0 OUT" >&2
	exit 2
fi
if [ "$(uname -s)" != Linux ]; then
	echo "the embedded Kubernetes needs Linux: set KUBECONFIG to use a cluster of your own" >&2
	exit 1
fi

out=$(realpath -m "$1")
cd "$(dirname "$0")"
export GOWORK=off CGO_ENABLED=0

version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
minor=${minor%%.*}

ldflags='-s -w'
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	ldflags="$ldflags -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor"
done

# build DIR OUT: aside first, since a running cluster keeps its file, and nobody sees half of one.
build() {
	go -C "$1" build -trimpath -ldflags "$ldflags" -o "$2.new" .
	mv "$2.new" "$2"
}

build coredns "$(dirname "$out")/seatrial-coredns"
build . "$out"
