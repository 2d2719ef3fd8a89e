module github.com/seatrial/seatrial/services/tester

go 1.26.0

require (
	github.com/seatrial/seatrial/internal/helm v0.0.0
	github.com/seatrial/seatrial/internal/kit v0.0.0
	github.com/seatrial/seatrial/proto v0.0.0
	k8s.io/client-go v0.37.2
)

replace (
	github.com/seatrial/seatrial/internal/helm => ../../internal/helm
	github.com/seatrial/seatrial/internal/kit => ../../internal/kit
	github.com/seatrial/seatrial/proto => ../../proto
)
