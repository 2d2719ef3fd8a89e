# The one interface for people and for CI: `make help` lists the targets.
# verify-* targets only read the tree, fix-* targets write it.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN     := $(CURDIR)/.bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Everything is compiled in one way, as for a release, and so each dependency only once. The race detector is the exception.
export CGO_ENABLED := 0
export GOFLAGS     += -trimpath

# The modules of go.work, as folders. tools and those of dev/cluster stand outside: their dependencies would decide ours.
MODULES = $(shell go list -m -f '{{.Dir}}')
OUTSIDE = tools dev/cluster dev/cluster/coredns dev/cluster/kwok

# The real `nats` program, for the demo and the tests that play a person.
export SEATRIAL_NATS_CLI := $(BIN)/nats

# A KUBECONFIG of your own wins: then no Kubernetes is built or started. The demo and the tests want pods that are run:
# where KWOK would have to play the node, they say so and end.
CLUSTER    := $(if $(KUBECONFIG),,.bin/seatrial-cluster)
IN_CLUSTER := $(CLUSTER:%=% run --node=real --)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

## Building

.PHONY: build
build: ## Build the release binaries into .bin/
	@for dir in services/planner services/executor services/tester services/notifier deploy/provision; do \
		GOWORK=off go -C $$dir build -ldflags '-s -w -X github.com/seatrial/seatrial/internal/kit/service.Version=$(VERSION)' \
			-o $(BIN)/seatrial-$${dir##*/} .; \
	done

.PHONY: cluster
cluster: .bin/seatrial-cluster .bin/seatrial-coredns ## Build the embedded Kubernetes (15 minutes the first time on two cores)

.bin/seatrial-cluster .bin/seatrial-coredns &: $(shell find dev/cluster -type f -not -name '*_test.go' -not -name '*.md')
	dev/cluster/build.sh $(BIN)/seatrial-cluster

# Plays nodes for `seatrial-cluster --node=kwok`: built when somebody wants that, or tests it.
.bin/seatrial-kwok: dev/cluster/kwok/go.mod
	GOWORK=off go -C dev/cluster/kwok build -ldflags '-s -w' -o $(BIN)/seatrial-kwok sigs.k8s.io/kwok/cmd/kwok

# Each tool for itself, so that `make demo` waits for two of them only. tools/go.mod pins their versions.
TOOLS := buf golangci-lint gotestsum govulncheck helm nats nats-server protoc-gen-go

.PHONY: tools
tools: $(TOOLS:%=.bin/%) ## Build the tools of tools/go.mod into .bin/

$(TOOLS:%=.bin/%): .bin/%: tools/go.mod
	GOWORK=off GOBIN=$(BIN) go -C tools install $$(grep -oE '[^[:space:]]*/$*(/v[0-9]+)?$$' tools/go.mod)

.bin/ca-certificates.crt: dev/roots/main.go dev/go.mod
	go run ./dev/roots >$@

.bin/empty:
	mkdir -p $@

# What deploy/Dockerfile and deploy/nats/Dockerfile copy.
IMAGE_PARTS := build .bin/nats-server .bin/ca-certificates.crt .bin/empty

# Either of the two programs. It wants to be told of the cluster also where it only builds.
.PHONY: images
images: $(IMAGE_PARTS) ## Build the container images of docker-compose.yaml
	compose=$$(command -v docker-compose || echo docker compose); \
	KUBECONFIG=$${KUBECONFIG:-/dev/null} SEATRIAL_VERSION=$(VERSION) $$compose build

## Running

.PHONY: demo
demo: $(CLUSTER) .bin/helm .bin/nats ## Play the whole story on this machine, on a real Kubernetes
	go build -o .bin/seatrial-demo ./dev
	$(IN_CLUSTER) $(DEMO_ALONE) .bin/seatrial-demo -nats $(BIN)/nats -helm $(BIN)/helm

# A running system's NATS_URL counts together with its KUBECONFIG only: it knows nothing of a cluster that is started here.
DEMO_ALONE := $(if $(CLUSTER),env -u NATS_URL -u SEATRIAL_NATS_URL)

# SEATRIAL_STATE, SEATRIAL_NATS_PORT and SEATRIAL_HTTP_PORT are read by the program itself.
.PHONY: up
up: $(CLUSTER) .bin/helm .bin/nats ## Run everything on this machine until Ctrl-C; SEATRIAL_STATE=folder keeps the streams
	@go build -o .bin/seatrial-up ./dev/up
	@$(IN_CLUSTER) .bin/seatrial-up

.PHONY: compose-test
compose-test: $(CLUSTER) $(IMAGE_PARTS) .bin/helm .bin/nats ## Play the whole story on containers, with a Docker engine of its own or that of DOCKER_HOST
	go build -o .bin/seatrial-demo ./dev
	dev/compose/engine.sh $(IN_CLUSTER) dev/compose/test.sh

TEST_TIMEOUT ?= 20m

# The embedded Kubernetes goes without the race detector: with it, all of Kubernetes would be compiled once more.
.PHONY: test
test: $(CLUSTER) $(CLUSTER:%=.bin/seatrial-kwok) .bin/gotestsum .bin/nats ## Run all tests: unit, on NATS, on Kubernetes, end to end
	$(if $(CLUSTER),cd dev/cluster && GOWORK=off $(BIN)/gotestsum -- -count=1 -timeout=$(TEST_TIMEOUT) ./...)
	CGO_ENABLED=1 $(IN_CLUSTER) $(BIN)/gotestsum -- -race -count=1 -timeout=$(TEST_TIMEOUT) work

FUZZTIME ?= 30s

# Targets are found by name: `go test -list` would run each TestMain, and some of them want a cluster.
.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' $(MODULES) | while IFS=: read -r file func; do \
		go test -run='^$$' -fuzz="^$${func#func }$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=1s "$${file%/*}"; \
	done

## Checking

.PHONY: verify
verify: verify-format verify-lint verify-vet verify-proto verify-tidy verify-versions verify-imports ## Run every verify-* target

.PHONY: verify-format
verify-format: .bin/golangci-lint ## Check that the Go code is formatted
	.bin/golangci-lint fmt --diff

.PHONY: verify-lint
verify-lint: .bin/golangci-lint ## Run the linters of .golangci.yaml
	.bin/golangci-lint run --allow-serial-runners $(MODULES:%=%/...)
	cd dev/cluster && GOWORK=off $(BIN)/golangci-lint run --allow-serial-runners
	@impatient=$$(grep -rl --include='*_test.go' 'time\.Sleep' $(MODULES) | xargs -r grep -L testing/synctest || true); \
	[ -z "$$impatient" ] || { echo "time.Sleep outside testing/synctest, poll instead: $$impatient" >&2; exit 1; }

.PHONY: verify-vet
verify-vet: ## Run go vet
	go vet work

# What the messages may not break is the last release; before there is one, it is main.
PROTO_BASE ?= $(shell git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || git merge-base HEAD main 2>/dev/null)

.PHONY: verify-proto
verify-proto: .bin/buf .bin/protoc-gen-go ## Check the messages: style, generated code, compatibility with the last release
	.bin/buf lint
	.bin/buf format --diff --exit-code
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; mkdir "$$tmp"/{have,want,base}; \
	find proto -name '*.pb.go' -exec cp --parents -t "$$tmp/have" {} +; \
	.bin/buf generate --output "$$tmp/want"; \
	diff -ru "$$tmp/have" "$$tmp/want" || { echo 'generated code is out of date: make fix-proto' >&2; exit 1; }; \
	if [ -n "$(PROTO_BASE)" ] && git cat-file -e "$(PROTO_BASE):buf.yaml" 2>/dev/null; then \
		git archive "$(PROTO_BASE)" buf.yaml proto | tar -x -C "$$tmp/base"; \
		.bin/buf breaking --against "$$tmp/base"; \
	fi

.PHONY: verify-tidy
verify-tidy: ## Check that each go.mod is tidy, on its own
	@untidy=; for dir in $(MODULES) $(OUTSIDE); do \
		GOWORK=off go -C $$dir mod tidy -diff || untidy+=" $$dir"; \
	done; \
	[ -z "$$untidy" ] || { echo "make fix-tidy:$$untidy" >&2; exit 1; }

.PHONY: verify-versions
verify-versions: ## Check that the modules of go.work agree on every version
	go run ./dev/versions

.PHONY: verify-imports
verify-imports: ## Check who imports whom
	go run ./dev/imports

.PHONY: vuln
vuln: .bin/govulncheck ## Look for known vulnerabilities (asks vuln.go.dev, hence not part of verify)
	.bin/govulncheck $(MODULES:%=%/...)

## Fixing

.PHONY: fix-format
fix-format: .bin/golangci-lint ## Format the Go code
	.bin/golangci-lint fmt

.PHONY: fix-proto
fix-proto: .bin/buf .bin/protoc-gen-go ## Format the messages and generate their Go code
	.bin/buf format --write
	.bin/buf generate

.PHONY: fix-tidy
fix-tidy: ## Bring the go.mod files to one version of everything, and tidy them
	go work sync
	@for dir in $(MODULES) $(OUTSIDE); do GOWORK=off go -C $$dir mod tidy; done

.PHONY: clean
clean: ## Remove what make built
	rm -rf .bin .cache .bench
