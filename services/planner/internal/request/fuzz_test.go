package request_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/request"
)

// FuzzDecode holds the walk against protojson, which knows the rules of the notation: what is accepted, protojson reads
// as well and as the same; and whatever comes, the answer can be published.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"chart": {"object": "web.tgz"}, "values": {"a": [1, null, {"b": "c"}]}}`,
		`{"chart": {"object": "web.tgz"}, "upgrade": {"timeout": "5m", "wait": false, "labels": {"a": "b"}}, "test": {"filters": {"!name": ["x"]}}}`,
		`{"toRevision": "3", "upgrade": {"max_history": 1e1}}`, `{"timeout": null, "parallel": 2, "filters": {"name": []}}`,
		`{"a": 1, "a": 2}`, `{"id": "\ud800"}`, "\x0a\x01a", `{"force": true, "force": null}`,
	} {
		for _, verb := range request.Verbs {
			f.Add(verb, []byte(seed), "")
		}
	}
	f.Add(pb.VerbTest, []byte(`{}`), "application/json")
	f.Add(pb.VerbTest, []byte(`{}`), "\xc4")
	f.Fuzz(func(t *testing.T, verb string, body []byte, contentType string) {
		m := request.Message{Verb: verb, Release: web, Body: body, Sequence: 1, Header: map[string][]string{}}
		if contentType != "" {
			m.Header["Content-Type"] = []string{contentType}
		}
		req, violations := rules().Decode(m)
		require.NotEmpty(t, req.GetId())
		failure, err := proto.Marshal(request.Refusal(req, violations))
		require.NoError(t, err)
		require.Less(t, len(failure), 64<<10)
		if len(violations) > 0 {
			return
		}
		_, err = protojson.Marshal(req)
		require.NoError(t, err)
		stored, err := proto.Marshal(req)
		require.NoError(t, err)
		require.NoError(t, proto.Unmarshal(stored, &pb.Request{}), "what is stored can be read again")
		if len(body) == 0 || body[0] != '{' {
			return
		}
		want := map[string]proto.Message{
			pb.VerbDeploy: &pb.DeployRequest{}, pb.VerbRollback: &pb.RollbackRequest{}, pb.VerbUninstall: &pb.UninstallRequest{},
			pb.VerbTest: &pb.TestRequest{}, pb.VerbCancel: &pb.CancelRequest{}, pb.VerbSuspend: &pb.SuspendRequest{},
			pb.VerbResume: &pb.ResumeRequest{}, pb.VerbForgive: &pb.ForgiveRequest{},
		}[verb]
		if contentType == "application/protobuf" {
			return
		}
		require.NoError(t, protojson.Unmarshal(body, want), "protojson refuses what was accepted")
		// The same request in protobuf must come out the same.
		m.Body, err = proto.Marshal(want)
		require.NoError(t, err)
		m.Header["Content-Type"] = []string{"application/protobuf"}
		again, violations := rules().Decode(m)
		require.Empty(t, violations)
		require.True(t, proto.Equal(req, again), "%s\n%s", protojson.Format(req), protojson.Format(again))
	})
}
