#!/usr/bin/env bash
# Runs a command with a Docker engine that lives as long as it does: dev/compose/engine.sh COMMAND [ARGUMENT...]
#
# If DOCKER_HOST is set already, no engine is started, and the command runs with it as it is. Else the engine and the
# command run in namespaces of their own: whichever way they end, no process, mount, interface or iptables rule is left.
# There is no network in them but what the command makes. It needs root, and on Debian and Ubuntu installs what is missing.
set -euo pipefail

fail() {
	echo "engine.sh: $1" >&2
	exit 1
}

if [ -n "${DOCKER_HOST:-}" ]; then
	echo "using DOCKER_HOST=$DOCKER_HOST" >&2
	exec "$@"
fi

# Outside: what must be done while there is a network, and then the namespaces.
if [ "${SEATRIAL_ENGINE:-}" != inside ]; then
	[ "$EUID" = 0 ] || fail 'a Docker engine needs root: use sudo, or set DOCKER_HOST to use an engine of your own'
	[ -z "${KUBECONFIG:-}" ] || fail 'no container of an engine that is started here reaches the cluster of KUBECONFIG: set DOCKER_HOST too'
	# The engine, and what the embedded cluster would else install by itself.
	packages=(docker.io docker-compose iproute2 iptables containerd runc containernetworking-plugins busybox-static)
	if command -v apt-get >/dev/null && ! dpkg-query --show "${packages[@]}" &>/dev/null; then
		echo "engine.sh: installing ${packages[*]} with apt-get" >&2
		apt-get -q -o DPkg::Lock::Timeout=300 update >&2
		DEBIAN_FRONTEND=noninteractive \
			apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "${packages[@]}" >&2
	fi
	for program in dockerd docker docker-compose ip iptables; do
		command -v "$program" >/dev/null || fail "this machine lacks $program: install it, or set DOCKER_HOST to use an engine of your own"
	done
	export SEATRIAL_ENGINE=inside
	exec unshare --mount --net --ipc --pid --fork --kill-child --mount-proc "$0" "$@"
fi

# Inside, as the first process. No namespace holds the folder and the control groups, which are empty then.
remove() {
	rm -rf "$1"
	find /sys/fs/cgroup -depth -type d -path "*/${1##*/}*" -exec rmdir {} + 2>/dev/null || true
}

# A lock says which folders are in use. The others are of engines that were killed.
prefix=${TMPDIR:-/tmp}/seatrial-engine-
for left in "$prefix"*; do
	if [ -d "$left" ] && flock --nonblock "$left" true; then
		remove "$left"
	fi
done
dir=$(mktemp -d "${prefix}XXXXXX")
exec {lock}<"$dir"
flock "$lock"

end() {
	if [ -n "${engine:-}" ]; then
		kill "$engine" 2>/dev/null && wait "$engine" || true
	fi
	remove "$dir"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

ip link set lo up
# Else dockerd would use this machine's containerd, and the cluster would hear of others' interfaces, which are not here.
mount -t tmpfs none /run

export DOCKER_HOST=unix://$dir/docker.sock DOCKER_BUILDKIT=0 # Debian's has no other builder
# A session of its own: Ctrl-C is for the command, and at its end it may need the engine once more.
setsid dockerd --host "$DOCKER_HOST" --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/docker.pid" \
	--cgroup-parent "/${dir##*/}" >"$dir/dockerd.log" 2>&1 &
engine=$!
late=$((SECONDS + 60))
until docker info &>/dev/null; do
	if ! kill -0 "$engine" 2>/dev/null || ((SECONDS > late)); then
		tail -20 "$dir/dockerd.log" >&2
		fail 'the Docker engine does not start; what it said last is above'
	fi
	sleep 0.1
done
TMPDIR=$dir "$@"
