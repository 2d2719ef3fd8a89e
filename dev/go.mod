module github.com/seatrial/seatrial/dev

go 1.26.0

require (
	github.com/seatrial/seatrial/proto v0.0.0
	github.com/seatrial/seatrial/internal/kit v0.0.0
	github.com/seatrial/seatrial/internal/helm v0.0.0
	github.com/seatrial/seatrial/services/planner v0.0.0
	github.com/seatrial/seatrial/services/executor v0.0.0
	github.com/seatrial/seatrial/services/tester v0.0.0
	github.com/seatrial/seatrial/services/notifier v0.0.0
)

replace (
	github.com/seatrial/seatrial/proto => ../proto
	github.com/seatrial/seatrial/internal/kit => ../internal/kit
	github.com/seatrial/seatrial/internal/helm => ../internal/helm
	github.com/seatrial/seatrial/services/planner => ../services/planner
	github.com/seatrial/seatrial/services/executor => ../services/executor
	github.com/seatrial/seatrial/services/tester => ../services/tester
	github.com/seatrial/seatrial/services/notifier => ../services/notifier
)
