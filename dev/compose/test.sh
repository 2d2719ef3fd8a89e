#!/usr/bin/env bash
# Brings up the containers of docker-compose.yaml on the cluster of KUBECONFIG, plays the demo on them, and takes them
# down. `make compose-test` builds what is needed, and runs it with an engine and a cluster.
set -euo pipefail
cd "$(dirname "$0")/../.."

export COMPOSE_PROJECT_NAME=seatrial-test
compose=(docker-compose)
command -v docker-compose >/dev/null || compose=(docker compose)
ready=5 # planner, executor, two testers, notifier

# The file is for the user in the containers, who sees nothing but it; the folder is for this one alone.
dir=$(mktemp -d)
install -m 0444 "$KUBECONFIG" "$dir/kubeconfig"
containers() { env KUBECONFIG="$dir/kubeconfig" "${compose[@]}" "$@"; }

end() {
	local code=$?
	if [ "$code" != 0 ]; then
		containers ps || true
		containers logs --no-color --tail=20 || true
	fi
	containers down --volumes --timeout=10 || code=$?
	rm -rf "$dir"
	exit "$code"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

make images
docker image ls --filter 'reference=seatrial-*'

containers up --detach
late=$((SECONDS + 120))
until [ "$(docker ps --quiet --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" --filter health=healthy | wc -l)" = "$ready" ]; do
	if ((SECONDS > late)); then
		echo "test.sh: not $ready containers are ready" >&2
		exit 1
	fi
	sleep 0.2
done

.bin/seatrial-demo -nats .bin/nats -helm .bin/helm -nats-url "nats://127.0.0.1:${SEATRIAL_NATS_PORT:-4222}"
