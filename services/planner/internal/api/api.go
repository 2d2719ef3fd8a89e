// Package api answers people and pipelines: the NATS micro service seatrial-planner. It writes no state. A request that
// is well formed is published where everybody can publish, and the answer says that it is stored.
package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"google.golang.org/protobuf/proto"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/request"
)

// Name of the service, as `nats micro ls` shows it.
const Name = "seatrial-planner"

// Verbs besides those of requests.
const (
	verbGet     = "get"
	verbHistory = "history"
	verbList    = "list"
	verbWait    = "wait"
)

// Options of an API.
type Options struct {
	Rules request.Rules
	// Version of the program.
	Version string
	// Waiters is how many may wait here at once for requests to be settled.
	Waiters int
}

// API is the service.
type API struct {
	options  Options
	conn     *bus.Conn
	log      *slog.Logger
	releases *bus.Bucket[*pb.ReleaseState]
	requests *bus.Bucket[*pb.RequestRow]
}

// New binds to the buckets.
func New(ctx context.Context, conn *bus.Conn, options Options, log *slog.Logger) (*API, error) {
	releases, err := bus.OpenBucket[*pb.ReleaseState](ctx, conn, subject.BucketReleases)
	if err != nil {
		return nil, err
	}
	requests, err := bus.OpenBucket[*pb.RequestRow](ctx, conn, subject.BucketRequests)
	if err != nil {
		return nil, err
	}
	return &API{options: options, conn: conn, log: log, releases: releases, requests: requests}, nil
}

// answerTimeout is how long anything but a wait may take.
const answerTimeout = 10 * time.Second

// inquiry answers one question, on its subject.
type inquiry func(ctx context.Context, name string, q question) (proto.Message, error)

// handler answers one question about a release.
type handler func(ctx context.Context, verb string, r subject.Release, q question) (proto.Message, error)

// question is what was sent: the part of micro.Request that handlers read.
type question interface {
	Headers() micro.Headers
	Data() []byte
}

// Run serves until ctx ends. The planners form a queue group: each question goes to one of them.
func (a *API) Run(ctx context.Context) error {
	service, err := micro.AddService(a.conn.NC, micro.Config{
		Name:        Name,
		Version:     semver(a.options.Version),
		Description: "Deploys Helm charts, proves them with their own tests, and says what became of it",
		QueueGroup:  Name,
	})
	if err != nil {
		return fmt.Errorf("serve the API: %w", err)
	}
	serve := func(name, on string, handle inquiry) {
		err = errors.Join(err, service.AddEndpoint(name, micro.HandlerFunc(func(req micro.Request) {
			ctx, cancel := context.WithTimeout(ctx, answerTimeout)
			defer cancel()
			a.answer(ctx, req, handle, now(req))
		}), micro.WithEndpointSubject(on)))
	}
	for _, verb := range request.Verbs {
		serve(verb, subject.APIFilter(verb), ofRelease(a.store))
	}
	serve(verbGet, subject.APIFilter(verbGet), ofRelease(a.get))
	serve(verbHistory, subject.APIFilter(verbHistory), ofRelease(a.history))
	for i, on := range subject.APIListFilters() {
		serve([]string{verbList, verbList + "-cluster", verbList + "-namespace"}[i], on, a.list)
	}
	waiters := make(chan struct{}, a.options.Waiters) // one token each
	err = errors.Join(err, service.AddEndpoint(verbWait, micro.HandlerFunc(func(req micro.Request) {
		select {
		case waiters <- struct{}{}:
			go func() {
				defer func() { <-waiters }()
				a.answer(ctx, req, ofRelease(a.wait), a.later(req))
			}()
		default:
			a.answer(ctx, req, ofRelease(tooMany), now(req))
		}
	}), micro.WithEndpointSubject(subject.APIFilter(verbWait))))
	if err == nil {
		<-ctx.Done()
	}
	err = errors.Join(err, service.Stop())
	for range cap(waiters) { // whoever waits has been told to ask another planner, and nobody can come any more
		waiters <- struct{}{}
	}
	return err
}

// ofRelease reads the release out of the subject.
func ofRelease(handle handler) inquiry {
	return func(ctx context.Context, name string, q question) (proto.Message, error) {
		verb, r, err := subject.ParseAPI(name)
		if err != nil {
			return nil, refuse(codeBadRequest, err.Error(), "name the release as the subject's last three words, with _ for a dot")
		}
		return handle(ctx, verb, r, q)
	}
}

// answer has a question handled and sends what comes of it.
func (a *API) answer(ctx context.Context, req micro.Request, handle inquiry, send sender) {
	body, err := handle(ctx, req.Subject(), req)
	var refused *refusal
	if err != nil {
		refused = a.refusal(ctx, req.Subject(), err)
		body = refused.answer
	}
	data, err := wire.MarshalJSON(body)
	if err == nil {
		err = send(data, refused)
	}
	if err != nil {
		a.log.WarnContext(ctx, "cannot send an answer", "subject", req.Subject(), "error", err)
	}
}

// sender sends an answer, which is that of a refusal or, with nil, the one that was asked for.
type sender func(data []byte, refused *refusal) error

var jsonHeader = micro.WithHeaders(micro.Headers{wire.HeaderContentType: {wire.JSON}})

// now sends from within the handler of the micro service, which counts the errors.
func now(req micro.Request) sender {
	return func(data []byte, refused *refusal) error {
		if refused != nil {
			return req.Error(refused.code, refused.line(), data, jsonHeader)
		}
		return req.Respond(data, jsonHeader)
	}
}

// later sends when the handler of the micro service has returned, and may not be used any more.
func (a *API) later(req micro.Request) sender {
	return func(data []byte, refused *refusal) error {
		msg := &nats.Msg{Subject: req.Reply(), Data: data, Header: nats.Header{wire.HeaderContentType: {wire.JSON}}}
		if refused != nil {
			msg.Header.Set(micro.ErrorHeader, refused.line())
			msg.Header.Set(micro.ErrorCodeHeader, refused.code)
		}
		return a.conn.NC.PublishMsg(msg)
	}
}
