package request_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/seatrial/seatrial/internal/kit/subject"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/request"
)

var web = subject.Release{Cluster: "local", Namespace: "shop", Name: "web"}

func rules() request.Rules {
	r := request.DefaultRules()
	r.Clusters = map[string][]string{"local": {"slow"}, "prod": nil}
	return r
}

func message(verb, body string) request.Message {
	return request.Message{
		Verb: verb, Release: web, Body: []byte(body),
		Header: map[string][]string{}, Sequence: 7, Received: time.Unix(1700000000, 0),
	}
}

func decode(t *testing.T, m request.Message) *pb.Request {
	t.Helper()
	req, violations := rules().Decode(m)
	require.Empty(t, violations)
	return req
}

// fields maps the field of each violation to its message.
func fields(violations []*pb.Violation) map[string]string {
	found := map[string]string{}
	for _, v := range violations {
		found[v.GetField()] = v.GetMessage()
	}
	return found
}

func TestEveryDefaultIsFilledIn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, verb, body, want string
	}{
		{"deploy", "deploy", `{"chart": {"object": "web.tgz"}}`, `{
			"chart": {"object": "web.tgz"},
			"upgrade": {"timeout": "5m0s", "wait": true, "maxHistory": 10, "crds": "create", "onFailure": "rollback"},
			"test": {"enabled": true, "timeout": "5m0s", "deadline": "15m0s", "parallel": 1, "attempts": 1, "errorAttempts": 2,
				"onFailure": "rollback", "onError": "hold"}}`},
		{"rollback", "rollback", `{"toRevision": 3}`, `{
			"toRevision": 3,
			"upgrade": {"timeout": "5m0s", "wait": true, "maxHistory": 10, "crds": "create", "onFailure": "rollback"},
			"test": {"enabled": true, "timeout": "5m0s", "deadline": "15m0s", "parallel": 1, "attempts": 1, "errorAttempts": 2,
				"onFailure": "rollback", "onError": "hold"}}`},
		{"test, which leaves the release alone unless it says otherwise", "test", `{}`, `{
			"upgrade": {"timeout": "5m0s", "wait": true, "maxHistory": 10, "crds": "create", "onFailure": "rollback"},
			"test": {"enabled": true, "timeout": "5m0s", "deadline": "15m0s", "parallel": 1, "attempts": 1, "errorAttempts": 2,
				"onFailure": "hold", "onError": "hold"}}`},
		{"an empty body of a test", "test", ``, `{
			"upgrade": {"timeout": "5m0s", "wait": true, "maxHistory": 10, "crds": "create", "onFailure": "rollback"},
			"test": {"enabled": true, "timeout": "5m0s", "deadline": "15m0s", "parallel": 1, "attempts": 1, "errorAttempts": 2,
				"onFailure": "hold", "onError": "hold"}}`},
		{"what is given stays", "deploy", `{
			"chart": {"object": "web.tgz", "digest": "sha256:` + strings.Repeat("ab", 32) + `"},
			"valuesFrom": [{"kind": "Secret", "name": "web-values", "optional": true, "targetPath": "db.password"}],
			"upgrade": {"timeout": "90s", "wait": false, "createNamespace": true, "reuseValues": true, "maxHistory": 3, "crds": "skip",
				"labels": {"team": "shop", "example.com/tier": ""}, "onFailure": "hold"},
			"test": {"enabled": false, "timeout": "1m", "deadline": "2m", "filters": {"name": ["a"], "!name": ["b"]}, "parallel": 4,
				"failFast": true, "attempts": 2, "errorAttempts": 1, "onFailure": "hold", "onError": "rollback", "pool": "slow"},
			"force": true}`, `{
			"chart": {"object": "web.tgz", "digest": "sha256:` + strings.Repeat("ab", 32) + `"},
			"valuesFrom": [{"kind": "Secret", "name": "web-values", "key": "values.yaml", "optional": true, "targetPath": "db.password"}],
			"upgrade": {"timeout": "1m30s", "wait": false, "createNamespace": true, "reuseValues": true, "maxHistory": 3, "crds": "skip",
				"labels": {"team": "shop", "example.com/tier": ""}, "onFailure": "hold"},
			"test": {"enabled": false, "timeout": "1m0s", "deadline": "2m0s", "filters": {"name": ["a"], "!name": ["b"]}, "parallel": 4,
				"failFast": true, "attempts": 2, "errorAttempts": 1, "onFailure": "hold", "onError": "rollback", "pool": "slow"},
			"force": true}`},
		{"uninstall", "uninstall", ``, `{"uninstall": {"timeout": "5m0s", "wait": true}}`},
		{"what is given to an uninstall stays", "uninstall",
			`{"timeout": "90s", "wait": false, "disableHooks": true, "keepHistory": true, "description": "moved"}`,
			`{"uninstall": {"timeout": "1m30s", "wait": false, "disableHooks": true, "keepHistory": true, "description": "moved"}}`},
		{"uninstall after a first install", "deploy", `{"chart": {"object": "web.tgz"}, "test": {"onFailure": "uninstall"}}`, `{
			"chart": {"object": "web.tgz"},
			"upgrade": {"timeout": "5m0s", "wait": true, "maxHistory": 10, "crds": "create", "onFailure": "rollback"},
			"test": {"enabled": true, "timeout": "5m0s", "deadline": "15m0s", "parallel": 1, "attempts": 1, "errorAttempts": 2,
				"onFailure": "uninstall", "onError": "hold"}}`},
		{"cancel", "cancel", `{}`, `{}`},
		{"cancel one", "cancel", `{"request": "seq-12"}`, `{"cancels": "seq-12"}`},
		{"suspend", "suspend", ``, `{}`},
		{"resume", "resume", `{"release": "local/shop/web"}`, `{}`},
		{"forgive", "forgive", `{}`, `{}`},
		{"forgive one", "forgive", `{"key": "k1:abc"}`, `{"forgives": "k1:abc"}`},
		{"a chart of a registry", "deploy", `{"chart": {"oci": "oci://registry.example/web", "version": ">=1.4.0 <2.0.0", "verify": true}}`, `{
			"chart": {"oci": "oci://registry.example/web", "version": ">=1.4.0 <2.0.0", "verify": true},
			"upgrade": {"timeout": "5m0s", "wait": true, "maxHistory": 10, "crds": "create", "onFailure": "rollback"},
			"test": {"enabled": true, "timeout": "5m0s", "deadline": "15m0s", "parallel": 1, "attempts": 1, "errorAttempts": 2,
				"onFailure": "rollback", "onError": "hold"}}`},
		{"a chart of a repository", "deploy", `{"chart": {"repo": "https://charts.example/stable", "name": "web"}}`, `{
			"chart": {"repo": "https://charts.example/stable", "name": "web"},
			"upgrade": {"timeout": "5m0s", "wait": true, "maxHistory": 10, "crds": "create", "onFailure": "rollback"},
			"test": {"enabled": true, "timeout": "5m0s", "deadline": "15m0s", "parallel": 1, "attempts": 1, "errorAttempts": 2,
				"onFailure": "rollback", "onError": "hold"}}`},
		{"null is the same as nothing", "test", `{"timeout": null, "filters": null, "parallel": null}`, `{
			"upgrade": {"timeout": "5m0s", "wait": true, "maxHistory": 10, "crds": "create", "onFailure": "rollback"},
			"test": {"enabled": true, "timeout": "5m0s", "deadline": "15m0s", "parallel": 1, "attempts": 1, "errorAttempts": 2,
				"onFailure": "hold", "onError": "hold"}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var want pb.Request
			require.NoError(t, protojson.Unmarshal([]byte(test.want), &want))
			got := decode(t, message(test.verb, test.body))
			require.Equal(t, "seq-7", got.GetId())
			require.Equal(t, "local/shop/web", got.GetRelease())
			require.Equal(t, test.verb, got.GetVerb())
			require.Equal(t, uint64(7), got.GetSequence())
			require.Equal(t, int64(1700000000), got.GetReceivedAt().GetSeconds())
			want.Id, want.Release, want.Verb, want.Sequence = got.GetId(), got.GetRelease(), got.GetVerb(), got.GetSequence()
			want.ReceivedAt, want.Traceparent = got.GetReceivedAt(), got.GetTraceparent()
			require.Empty(t, got.GetFingerprint(), "values may come from elsewhere")
			require.JSONEq(t, protojson.Format(&want), protojson.Format(got))
		})
	}
}

func TestCapsAlsoCapTheDefaults(t *testing.T) {
	t.Parallel()
	r := rules()
	r.MaxTestTimeout, r.MaxTestDeadline, r.MaxUpgradeTimeout = time.Minute, 2*time.Minute, 3*time.Minute
	r.MaxAttempts, r.MaxHistory = 1, 4
	req, violations := r.Decode(message("deploy", `{"chart": {"object": "web.tgz"}}`))
	require.Empty(t, violations)
	require.Equal(t, "1m0s", req.GetTest().GetTimeout())
	require.Equal(t, "2m0s", req.GetTest().GetDeadline())
	require.Equal(t, "3m0s", req.GetUpgrade().GetTimeout())
	require.Equal(t, int32(1), req.GetTest().GetErrorAttempts())
	require.Equal(t, int32(4), req.GetUpgrade().GetMaxHistory())
}

func TestProtobufAndJSONSayTheSame(t *testing.T) {
	t.Parallel()
	body := &pb.DeployRequest{
		Id: "build-1", Chart: &pb.ChartSource{Object: "web.tgz"},
		Values:     &structpb.Struct{Fields: map[string]*structpb.Value{"replicas": structpb.NewNumberValue(2)}},
		ValuesFrom: []*pb.ValuesFrom{{Kind: "ConfigMap", Name: "web"}},
		Test:       &pb.TestOptions{Filters: &pb.TestFilters{NotName: []string{"slow"}}},
	}
	binary, err := proto.Marshal(body)
	require.NoError(t, err)
	text, err := protojson.Marshal(body)
	require.NoError(t, err)

	fromJSON := decode(t, message("deploy", string(text)))
	require.True(t, proto.Equal(fromJSON, decode(t, message("deploy", string(binary)))))
	for _, header := range []string{"Content-Type", "content-type", "CONTENT-TYPE"} {
		m := message("deploy", string(binary))
		m.Header[header] = []string{"application/protobuf"}
		require.True(t, proto.Equal(fromJSON, decode(t, m)))
		m = message("deploy", "\n "+string(text))
		m.Header[header] = []string{"application/json; charset=utf-8"}
		require.True(t, proto.Equal(fromJSON, decode(t, m)))
	}
}

func TestAllViolationsAreListedAtOnce(t *testing.T) {
	t.Parallel()
	_, violations := rules().Decode(message("deploy", `{
		"release": "local/shop/other",
		"chrat": {"object": "web.tgz"},
		"chart": {"object": "web.tgz", "oci": "oci://example/web", "digest": "abc"},
		"valuesFrom": [{"kind": "Secrets", "name": "UPPER"}, {"kind": "Secret", "name": "ok", "targetPath": "a..b", "kee": "x"}],
		"upgrade": {"timeout": "0s", "reuseValues": true, "resetValues": true, "maxHistory": 0, "crds": "createReplace", "onfailure": "hold",
			"labels": {"owner": "me", "a b": "c", "team": "no spaces"}, "wait": "yes"},
		"test": {"timeout": 5, "deadline": "5h", "parallel": 99, "attempts": -1, "onFailure": "explode", "onError": "", "pool": "gpu",
			"filters": {"name": "web", "!name": [""], "nam": []}, "required": true, "enabled": false},
		"force": 1
	}`))
	require.Equal(t, map[string]string{
		"release":                  "differs from the subject's, local/shop/web; leave it out or correct it",
		"chrat":                    `unknown field: did you mean "chart"?`,
		"chart":                    "must have exactly one of oci, repo, object and path",
		"valuesFrom[0].kind":       "must be ConfigMap or Secret",
		"valuesFrom[0].name":       "must be the name of a Secrets in the release's namespace",
		"valuesFrom[1].targetPath": "must be names joined by single dots",
		"valuesFrom[1].kee":        `unknown field: did you mean "key"?`,
		"upgrade.timeout":          "must be more than zero: nothing runs without a time-out",
		"upgrade.reuseValues":      "at most one of resetValues, reuseValues",
		"upgrade.resetValues":      "at most one of resetValues, reuseValues",
		"upgrade.maxHistory":       "must be a number from 1 to 100",
		"upgrade.crds":             "not supported yet; use skip or create",
		"upgrade.onfailure":        `unknown field: did you mean "onFailure"?`,
		"upgrade.labels.owner":     "is a label that Helm keeps for itself",
		"upgrade.labels.a b":       "is not the name of a Kubernetes label",
		"upgrade.labels.team":      "must be at most 63 letters, digits, - _ and ., starting and ending with a letter or digit",
		"upgrade.wait":             "must be true or false",
		"test.timeout":             `must be a duration in quotes, such as "5m"`,
		"test.deadline":            "at most 4h0m0s here",
		"test.parallel":            "must be a number from 1 to 16",
		"test.attempts":            "must be a number from 1 to 5",
		"test.onFailure":           "must be hold or rollback or uninstall",
		"test.onError":             "must be hold or rollback",
		"test.pool":                "unknown tester pool; cluster local has slow",
		"test.filters.name":        "must be a list",
		"test.filters.!name[0]":    "must be the name of a test",
		"test.filters.nam":         `unknown field: did you mean "name"?`,
		"test.required":            "contradicts enabled: false",
		"force":                    "must be true or false",
	}, fields(violations))
	require.IsIncreasing(t, func() (names []string) {
		for _, v := range violations {
			names = append(names, v.GetField())
		}
		return names
	}())
}

func TestOneViolation(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 101) + "1" + strings.Repeat("}", 101)
	for _, test := range []struct {
		name, verb, body, field, value, says string
	}{
		{"no chart", "deploy", `{}`, "chart", "", "is required"},
		{"an empty chart", "deploy", `{"chart": {}}`, "chart", "", "exactly one of"},
		{"two sources", "deploy", `{"chart": {"object": "a", "path": "b"}}`, "chart", "object and path", "exactly one of"},
		{"a chart of a registry with a tag", "deploy", `{"chart": {"oci": "oci://a/b:1.0.0"}}`, "chart.oci", "", "must not hold a tag: write it as version"},
		{"a chart of a registry with a password", "deploy", `{"chart": {"oci": "oci://u:s3cret@a/b"}}`, "chart.oci", "", "must not hold a user or a password"},
		{"a chart of a registry with a name", "deploy", `{"chart": {"oci": "oci://a/b", "name": "b"}}`, "chart.name", "b", "goes with repo"},
		{"a version beside a digest", "deploy", `{"chart": {"oci": "oci://a/b@sha256:` + strings.Repeat("0", 64) + `", "version": "1.x"}}`, "chart.version", "1.x", "leave out one of the two"},
		{"a version that is none", "deploy", `{"chart": {"oci": "oci://a/b", "version": "newest"}}`, "chart.version", "newest", "must be a version such as 1.4.2, or a range such as 1.4.x"},
		{"a version that was not filled in", "deploy", `{"chart": {"oci": "oci://a/b", "version": ""}}`, "chart.version", "", "must not be empty; leave it out for the newest"},
		{"a chart of a repository with a password", "deploy", `{"chart": {"repo": "https://u:s3cret@a", "name": "web"}}`, "chart.repo", "", "must not hold a user or a password"},
		{"a chart of a repository without a name", "deploy", `{"chart": {"repo": "https://a"}}`, "chart.name", "", "must be the name of a chart in the repository"},
		{"a registry as a repository", "deploy", `{"chart": {"repo": "oci://a", "name": "b"}}`, "chart.repo", "", "write it as chart.oci"},
		{"a version of an object", "deploy", `{"chart": {"object": "a", "version": "1"}}`, "chart.version", "1", "goes with oci and repo"},
		{"a name of an object", "deploy", `{"chart": {"object": "a", "name": "b"}}`, "chart.name", "b", "goes with repo"},
		{"a path where none is allowed", "deploy", `{"chart": {"path": "/tmp/a"}}`, "chart.path", "/tmp/a", "not allowed here"},
		{"a chart that is text", "deploy", `{"chart": "web.tgz"}`, "chart", `"web.tgz"`, "must be an object"},
		{"a field twice", "deploy", `{"chart": {"object": "a"}, "chart": {"object": "b"}}`, "chart", "", "given twice"},
		{"a field twice under two names", "test", `{"failFast": true, "fail_fast": true}`, "failFast", "", "given twice"},
		{"a label twice", "deploy", `{"chart": {"object": "a"}, "upgrade": {"labels": {"a": "b", "a": "c"}}}`, "upgrade.labels.a", "", "given twice"},
		{"jobs without waiting", "deploy", `{"chart": {"object": "a"}, "upgrade": {"wait": false, "waitForJobs": true}}`, "upgrade.waitForJobs", "true", "goes with wait"},
		{"a duration without unit", "test", `{"timeout": "5"}`, "timeout", "5", "must be a duration"},
		{"a duration below zero", "test", `{"deadline": "-1s"}`, "deadline", "-1s", "more than zero"},
		{"an empty duration", "test", `{"timeout": ""}`, "timeout", "", "must be a duration"},
		{"a duration over the cap", "test", `{"timeout": "61m"}`, "timeout", "61m", "at most 1h0m0s"},
		{"parallel zero", "test", `{"parallel": 0}`, "parallel", "0", "from 1 to 16"},
		{"a fraction", "test", `{"attempts": 1.5}`, "attempts", "1.5", "whole number"},
		{"a number out of range", "test", `{"attempts": 5000000000}`, "attempts", "5000000000", "32 bits"},
		{"null in a list", "test", `{"filters": {"name": [null]}}`, "filters.name[0]", "null", "must be a string"},
		{"half a character", "test", `{"onError": "\ud800"}`, "onError", `"\ud800"`, "Unicode"},
		{"uninstalling after tests of what ran before", "test", `{"onFailure": "uninstall"}`, "onFailure", "uninstall", "must be hold or rollback"},
		{"uninstalling after a rollback", "rollback", `{"test": {"onFailure": "uninstall"}}`, "test.onFailure", "uninstall", "must be hold or rollback"},
		{"an uninstall that may take too long", "uninstall", `{"timeout": "61m"}`, "timeout", "61m", "at most 1h0m0s"},
		{"a description of no record", "uninstall", `{"description": "gone"}`, "description", "gone", "goes with keepHistory"},
		{"a cancel of what is no id", "cancel", `{"request": "a b"}`, "request", "a b", "must be the id of a request"},
		{"a key that is empty", "forgive", `{"key": ""}`, "key", "", "leave it out to forgive all"},
		{"an option of a suspension", "suspend", `{"until": "1h"}`, "until", "", "unknown field"},
		{"a release that is another one", "resume", `{"release": "local/shop/api"}`, "release", "local/shop/api", "differs from the subject's"},
		{"a field of another verb", "test", `{"toRevision": 3}`, "toRevision", "", "unknown field"},
		{"an option that a rollback ignores", "rollback", `{"upgrade": {"createNamespace": true}}`, "upgrade.createNamespace", "", "means nothing in a rollback"},
		{"a revision below zero", "rollback", `{"toRevision": -1}`, "toRevision", "-1", "must be a revision"},
		{"values that are text", "deploy", `{"chart": {"object": "a"}, "values": "replicas=2"}`, "values", "", "must be an object"},
		{"values with a name twice", "deploy", `{"chart": {"object": "a"}, "values": {"a": 1, "a": 2}}`, "values", "", "given twice"},
		{"values that lose digits", "deploy", `{"chart": {"object": "a"}, "values": {"ids": [{"a": 9007199254740993}]}}`, "values.ids[0].a", "", "write it in quotes"},
		{"values nested without end", "deploy", `{"chart": {"object": "a"}, "values": ` + deep + `}`, "values", "", "nested more than 100 deep"},
		{"a body without end of options", "deploy", `{"chart": {"object": "a"}, "upgrade": {"description": "` + strings.Repeat("x", 64<<10) + `"}}`, "body", "", "at most 65536"},
		{"a body over the limit", "deploy", strings.Repeat(" ", 512<<10) + "{}", "body", "", "has 524290 bytes; at most 524288 (512 KiB)"},
		{"an unknown verb", "explode", `{}`, "verb", "explode", "unknown; known: deploy, rollback, uninstall, test, cancel, suspend, resume, forgive"},
		{"broken JSON", "test", "{\n  \"timeout\": \"5m\",\n  timeout: 1}", "body", "", "line 3, column 3"},
		{"JSON that ends early", "test", `{"timeout": "5m"`, "body", "", "unexpected end"},
		{"two objects", "test", `{} {}`, "body", "", "line 1, column 4"},
		{"neither JSON nor protobuf", "test", `timeout: 5m`, "body", "", "neither JSON"},
		{"bytes that are no text", "test", "{\"onError\": \"\xff\"}", "body", "", "not UTF-8"},
		{"a long name", "test", `{"` + strings.Repeat("x", 100) + `": 1}`, `"` + strings.Repeat("x", 64) + `..."`, "", "unknown field"},
		{"a name that no terminal should see", "test", `{"\u001b[2J": 1}`, `"\x1b[2J"`, "", "unknown field"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, violations := rules().Decode(message(test.verb, test.body))
			require.Len(t, violations, 1)
			require.Equal(t, test.field, violations[0].GetField())
			require.Equal(t, test.value, violations[0].GetValue())
			require.Contains(t, violations[0].GetMessage(), test.says)
		})
	}
}

func TestContentTypeIsTold(t *testing.T) {
	t.Parallel()
	m := message("test", `{}`)
	m.Header["content-type"] = []string{"text/yaml"}
	_, violations := rules().Decode(m)
	require.Equal(t, map[string]string{"Content-Type": "must be application/json or application/protobuf"}, fields(violations))
}

func TestUnknownClusterIsRejected(t *testing.T) {
	t.Parallel()
	m := message("test", `{"pool": "slow"}`)
	m.Release.Cluster = "stage"
	_, violations := rules().Decode(m)
	require.Equal(t, map[string]string{"cluster": "is not served here; known: local, prod"}, fields(violations))
}

func TestPathsAreForThoseWhoAllowThem(t *testing.T) {
	t.Parallel()
	r := rules()
	r.AllowPaths = true
	_, violations := r.Decode(message("deploy", `{"chart": {"path": "/charts/web.tgz"}}`))
	require.Empty(t, violations)
}

func TestUnknownProtobufFieldsAreTold(t *testing.T) {
	t.Parallel()
	filters := protowire.AppendVarint(protowire.AppendTag(nil, 9, protowire.VarintType), 1)
	body := protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), filters)
	body = protowire.AppendVarint(protowire.AppendTag(body, 99, protowire.VarintType), 1)
	_, violations := rules().Decode(message("test", string(body)))
	require.Equal(t, map[string]string{"99": "unknown field number", "filters.9": "unknown field number"}, fields(violations))
}

func TestNumbersThatJSONLacksAreRefusedInProtobufToo(t *testing.T) {
	t.Parallel()
	body, err := proto.Marshal(&pb.DeployRequest{
		Chart: &pb.ChartSource{Object: "a"},
		Values: &structpb.Struct{Fields: map[string]*structpb.Value{
			"nan": structpb.NewNumberValue(math.NaN()), "inf": structpb.NewNumberValue(math.Inf(1)), "none": {},
		}},
	})
	require.NoError(t, err)
	_, violations := rules().Decode(message("deploy", string(body)))
	require.Equal(t, map[string]string{
		"values.nan": "must be a finite number", "values.inf": "must be a finite number", "values.none": "has no value",
	}, fields(violations))
}

func TestInlineValuesHaveALimitInBothEncodings(t *testing.T) {
	t.Parallel()
	body := func(values any) string {
		text, err := json.Marshal(map[string]any{"chart": map[string]any{"object": "a"}, "values": values})
		require.NoError(t, err)
		return string(text)
	}
	for _, test := range []struct {
		name   string
		values any
		wants  string
	}{
		{"as many bytes as allowed", map[string]any{"a": strings.Repeat("x", 256<<10-len(`{"a":""}`))}, "values have 262151 bytes"},
		{"one byte less than protobuf needs", map[string]any{"a": strings.Repeat("x", 256<<10-15)}, ""},
		{"short in JSON, long in protobuf", map[string]any{"a": make([]int, 30_000)}, "values have 330015 bytes"},
		{"long in JSON, short in protobuf", map[string]any{"a": strings.Repeat("\x01", 50_000)}, "values have 300008 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, violations := rules().Decode(message("deploy", body(test.values)))
			if test.wants == "" {
				require.Empty(t, violations)
				return
			}
			require.Len(t, violations, 1)
			require.Equal(t, test.wants+" as they are sent on; at most 262144 (256 KiB)", violations[0].GetField()+" "+violations[0].GetMessage())
		})
	}
}

func TestInlineValuesAreNeverShown(t *testing.T) {
	t.Parallel()
	const canary = "hunter2-canary"
	for name, body := range map[string]string{
		"values of the wrong type":       `{"values": "` + canary + `"}`,
		"a list of values":               `{"values": ["` + canary + `"]}`,
		"a mistyped name":                `{"vaules": {"password": "` + canary + `"}}`,
		"a mistyped name with text":      `{"vaules": "` + canary + `"}`,
		"a secret in the wrong place":    `{"chart": {"password": "` + canary + `"}}`,
		"an object instead of a list":    `{"valuesFrom": {"password": "` + canary + `"}}`,
		"a name twice":                   `{"values": {"a": "` + canary + `", "a": 1}}`,
		"half a character beside it":     `{"values": {"a": "` + canary + `\ud800"}}`,
		"a number too long":              `{"values": {"` + "a" + `": 12345678901234567890}, "id": "x y"}`,
		"JSON that breaks off in values": `{"values": {"a": "` + canary,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req, violations := rules().Decode(message("deploy", body))
			require.NotEmpty(t, violations)
			told := protojson.Format(request.Refusal(req, violations))
			require.NotContains(t, told, canary)
			require.NotContains(t, told, "12345678901234567890")
		})
	}
}

func TestABodyFullOfMistakesGivesAShortList(t *testing.T) {
	t.Parallel()
	var body strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&body, `,"field%d": 1`, i)
	}
	_, violations := rules().Decode(message("test", "{"+body.String()[1:]+"}"))
	require.Len(t, violations, 51)
	require.Equal(t, "has 9950 more violations that are not listed", violations[50].GetMessage())
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, body, header string
		sequence           uint64
		id                 string
		violations         map[string]string
	}{
		{"of the body", `{"id": "build-1.2"}`, "", 7, "build-1.2", nil},
		{"of the header", `{}`, "build-1", 7, "build-1", nil},
		{"of both", `{"id": "build-1"}`, "build-1", 7, "build-1", nil},
		{"of the stream", `{}`, "", 7, "seq-7", nil},
		{"none before it is stored", `{}`, "", 0, "", nil},
		{"of both and different", `{"id": "a"}`, "b", 7, "seq-7", map[string]string{"id": `differs from the header Nats-Msg-Id, which says "b"`}},
		{"of the header when the body cannot be read", `{`, "build-1", 7, "build-1", map[string]string{"body": "is not JSON: line 1, column 1: unexpected end of JSON input"}},
		{"of the body when something else is wrong", `{"id": "build-1", "x": 1}`, "", 7, "build-1", map[string]string{"x": "unknown field"}},
		{"of the header when that of the body has the wrong type", `{"id": 5}`, "b", 7, "b", map[string]string{"id": "must be a string of Unicode characters"}},
		{"with a space", `{"id": "a b"}`, "", 7, "seq-7", map[string]string{"id": form}},
		{"like one of ours", `{"id": "seq-12"}`, "", 7, "seq-7", map[string]string{"id": form}},
		{"with a dot at the end", `{"id": "a."}`, "", 7, "seq-7", map[string]string{"id": form}},
		{"with two dots", `{"id": "a..b"}`, "", 7, "seq-7", map[string]string{"id": form}},
		{"with a wildcard in the header", `{}`, "a.*", 7, "seq-7", map[string]string{"Nats-Msg-Id": form}},
		{"too long", `{"id": "` + strings.Repeat("a", 129) + `"}`, "", 7, "seq-7", map[string]string{"id": form}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := message("test", test.body)
			m.Sequence = test.sequence
			if test.header != "" {
				m.Header["nats-msg-id"] = []string{test.header}
			}
			req, violations := rules().Decode(m)
			require.Equal(t, test.id, req.GetId())
			if test.violations == nil {
				test.violations = map[string]string{}
			}
			require.Equal(t, test.violations, fields(violations))
		})
	}
}

const form = "must be at most 128 letters, digits, - _ and single dots inside, starting with a letter or digit, and not with seq-"

func TestTheTraceIsTakenOrMade(t *testing.T) {
	t.Parallel()
	const given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traced := func(header, id string) string {
		m := message("test", `{"id": "`+id+`"}`)
		m.Header["Traceparent"] = []string{header}
		return decode(t, m).GetTraceparent()
	}
	require.Equal(t, given, traced(given, "a"))
	made := traced("", "a")
	require.Regexp(t, `^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`, made)
	require.Equal(t, made, traced("nonsense", "a"), "read again, a request stays in its trace")
	require.Equal(t, made, traced("00-"+strings.Repeat("0", 32)+"-b7ad6b7169203331-01", "a"))
	require.NotEqual(t, made, traced("", "b"))
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	printOf := func(body string) string { return decode(t, message("deploy", body)).GetFingerprint() }
	base := printOf(`{"chart": {"object": "a"}, "values": {"a": 1, "b": "x"}, "test": {"timeout": "60s"}}`)
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, base)
	for name, same := range map[string]string{
		"in another order and notation": `{"test": {"timeout": "1m"}, "values": {"b": "x", "a": 1.0}, "chart": {"object": "a"}}`,
		"with defaults written out":     `{"chart": {"object": "a"}, "values": {"a": 1, "b": "x"}, "test": {"timeout": "60s", "parallel": 1, "enabled": true}}`,
		"of another chart":              `{"chart": {"object": "b"}, "values": {"a": 1, "b": "x"}, "test": {"timeout": "60s"}}`,
		"under another id, by force":    `{"id": "again", "force": true, "chart": {"object": "a"}, "values": {"a": 1, "b": "x"}, "test": {"timeout": "60s"}}`,
	} {
		require.Equal(t, base, printOf(same), name)
	}
	for name, other := range map[string]string{
		"other values":         `{"chart": {"object": "a"}, "values": {"a": 2, "b": "x"}, "test": {"timeout": "60s"}}`,
		"other test options":   `{"chart": {"object": "a"}, "values": {"a": 1, "b": "x"}, "test": {"timeout": "61s"}}`,
		"other upgrade option": `{"chart": {"object": "a"}, "values": {"a": 1, "b": "x"}, "test": {"timeout": "60s"}, "upgrade": {"force": true}}`,
	} {
		require.NotEqual(t, base, printOf(other), name)
	}
	for name, none := range map[string]string{
		"values from the cluster":      `{"chart": {"object": "a"}, "values": {"a": 1}, "valuesFrom": [{"kind": "Secret", "name": "b"}]}`,
		"reused values":                `{"chart": {"object": "a"}, "values": {"a": 1}, "upgrade": {"reuseValues": true}}`,
		"reset and reused values":      `{"chart": {"object": "a"}, "values": {"a": 1}, "upgrade": {"resetThenReuseValues": true}}`,
		"none, so Helm keeps the last": `{"chart": {"object": "a"}, "values": {}}`,
	} {
		require.Empty(t, printOf(none), name)
	}
	require.NotEmpty(t, printOf(`{"chart": {"object": "a"}, "upgrade": {"resetValues": true}}`), "none, and the last are reset")
}

func TestDigestTellsRequestsApart(t *testing.T) {
	t.Parallel()
	base := message("test", `{}`)
	again := message("test", `{}`)
	again.Sequence, again.Header["traceparent"] = 99, []string{"x"}
	require.Equal(t, base.Digest(), again.Digest())
	otherVerb, otherRelease := message("rollback", `{}`), message("test", `{}`)
	otherRelease.Release.Name = "api"
	for _, other := range []request.Message{otherVerb, otherRelease, message("test", `{ }`)} {
		require.NotEqual(t, base.Digest(), other.Digest())
	}
}
