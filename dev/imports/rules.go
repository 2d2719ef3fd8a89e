package main

var rules = []rule{
	{
		why:  "the messages need protobuf alone, so that any client can import them",
		of:   []string{"./proto/..."},
		only: []string{"./proto/...", "google.golang.org/protobuf/..."},
	},
	{
		why:    "the kit is light: see its list in dev/imports/rules.go",
		of:     []string{"./internal/kit/..."},
		except: []string{"./internal/kit/kittest/..."},
		only: []string{
			"./proto/...",
			"./internal/kit/...",
			"github.com/cloudevents/sdk-go/...",
			"github.com/nats-io/nats.go/...",
			"github.com/nats-io/nkeys/...",
			"github.com/nats-io/nuid/...",
			"github.com/prometheus/client_golang/...",
			"go.opentelemetry.io/...",
			"google.golang.org/protobuf/...",
		},
	},
	{
		why:    "the kit and the notifier know no Helm and no Kubernetes",
		of:     []string{"./internal/kit/...", "./services/notifier/..."},
		not:    []string{"./internal/helm/...", "helm.sh/...", "k8s.io/...", "sigs.k8s.io/..."},
		linked: true,
		tests:  true,
	},
	{
		why:   "the planner decides and the workers act: of Helm it knows charts, of Kubernetes nothing",
		of:    []string{"./services/planner/..."},
		not:   []string{"./internal/helm/...", "k8s.io/...", "sigs.k8s.io/..."},
		allow: []string{"./internal/helm/chart/..."},
	},
	{
		why:    "charts are fetched without Kubernetes: linked, it would make the planner many times larger",
		of:     []string{"./services/planner/...", "./internal/helm/chart/..."},
		not:    []string{"k8s.io/..."},
		linked: true,
	},
	{
		why:  "the planner's core is pure: state and input in, state and effects out",
		of:   []string{"./services/planner/internal/core/..."},
		only: []string{"./services/planner/internal/core/...", "./proto/...", "google.golang.org/protobuf/..."},
	},
	{
		why: "the planner's core is pure: time, ids and chance are inputs, and it tells nobody", // .golangci.yaml adds time.Now
		of:  []string{"./services/planner/internal/core/..."},
		not: []string{"crypto/rand", "log/...", "math/rand/...", "net/...", "os/..."},
	},
	{
		why:    "internal/helm is the only seam to what changes a cluster",
		of:     []string{"./..."},
		except: []string{"./internal/helm/..."},
		not: []string{
			"helm.sh/helm/v3/pkg/action/...",
			"helm.sh/helm/v3/pkg/kube/...",
			"helm.sh/helm/v3/pkg/storage/...",
		},
		tests: true,
	},
	{
		why:   "services talk by messages only",
		of:    []string{"./services/..."},
		not:   []string{"./services/..."},
		apart: true,
		tests: true,
	},
	{
		why:   "what the services share knows none of them",
		of:    []string{"./proto/...", "./internal/...", "./deploy/..."},
		not:   []string{"./services/..."},
		tests: true,
	},
	{
		why:    "test and dev stand above everything",
		of:     []string{"./..."},
		except: []string{"./test/...", "./dev/..."},
		not:    []string{"./test/...", "./dev/..."},
		tests:  true,
	},
	{
		why:    "a release links nothing that is made for tests",
		of:     []string{"./..."},
		except: []string{"./test/...", "./dev/...", "./internal/kit/kittest/...", "./internal/helm/helmtest/..."},
		not: []string{
			"./internal/kit/kittest/...",
			"./internal/helm/helmtest/...",
			"github.com/nats-io/nats-server/...",
			"github.com/stretchr/testify/...",
		},
		linked: true,
	},
	{
		why:    "only dev/cluster, a module of its own, compiles Kubernetes itself",
		of:     []string{"./..."},
		not:    []string{"k8s.io/kubernetes/..."},
		linked: true,
		tests:  true,
	},
}
