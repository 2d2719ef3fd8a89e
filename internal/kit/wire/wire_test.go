package wire_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/seatrial/seatrial/internal/kit/wire"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestContentType(t *testing.T) {
	for name, row := range map[string]struct {
		headers map[string][]string
		data    string
		want    string
	}{
		"JSON":                    {map[string][]string{"Content-Type": {"application/json"}}, "", wire.JSON},
		"protobuf":                {map[string][]string{"Content-Type": {"application/protobuf"}}, "{", wire.Protobuf},
		"header in lower case":    {map[string][]string{"content-type": {"application/json"}}, "", wire.JSON},
		"header in upper case":    {map[string][]string{"CONTENT-TYPE": {"application/json"}}, "", wire.JSON},
		"value in upper case":     {map[string][]string{"Content-Type": {"Application/JSON"}}, "", wire.JSON},
		"with a parameter":        {map[string][]string{"Content-Type": {"application/json; charset=utf-8"}}, "", wire.JSON},
		"other headers only":      {map[string][]string{"X-Content-Type": {"text/html"}}, "{}", wire.JSON},
		"a header without values": {map[string][]string{"Content-Type": {}}, "{}", wire.JSON},
		"none, a brace":           {nil, "{}", wire.JSON},
		"none, something else":    {nil, "\n\x05", wire.Protobuf},
		"none, nothing":           {nil, "", wire.Protobuf},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := wire.ContentType(row.headers, []byte(row.data))
			require.NoError(t, err)
			require.Equal(t, row.want, got)
		})
	}
}

func TestUnknownContentTypesAreNamed(t *testing.T) {
	for _, value := range []string{"text/yaml", "application/x-protobuf", "", "json", ";"} {
		_, err := wire.ContentType(map[string][]string{"content-type": {value}}, []byte("{}"))
		require.ErrorIs(t, err, wire.ErrContentType)
		require.ErrorContains(t, err, "content-type")
		require.ErrorContains(t, err, wire.JSON)
	}
}

func TestUnmarshalTakesWhatPeopleWrite(t *testing.T) {
	got := &seatrialv1.DeployRequest{}
	require.NoError(t, wire.Unmarshal(nil, []byte(`{
		"chart": {"oci": "oci://registry.example/charts/web", "version": "1.4.x"},
		"values": {"replicas": 2, "nested": {"on": true}},
		"valuesFrom": [{"kind": "Secret", "name": "web-values", "optional": true}],
		"upgrade": {"timeout": "5m", "wait": false, "createNamespace": true},
		"test": {"filters": {"name": ["web-smoke"], "!name": ["web-slow", "web-other"]}, "failFast": true}
	}`), got))
	require.Equal(t, "1.4.x", got.GetChart().GetVersion())
	require.EqualValues(t, 2, got.GetValues().AsMap()["replicas"])
	require.True(t, got.GetValuesFrom()[0].GetOptional())
	require.NotNil(t, got.GetUpgrade().Wait, "said is not the same as left out")
	require.False(t, got.GetUpgrade().GetWait())
	require.Nil(t, got.GetTest().Enabled)
	require.Equal(t, []string{"web-smoke"}, got.GetTest().GetFilters().GetName())
	require.Equal(t, []string{"web-slow", "web-other"}, got.GetTest().GetFilters().GetNotName())

	data, err := wire.MarshalJSON(got.GetTest().GetFilters())
	require.NoError(t, err)
	require.Equal(t, `{"name":["web-smoke"],"!name":["web-slow","web-other"]}`, string(data))
}

func TestUnmarshalTellsATypo(t *testing.T) {
	for name, row := range map[string]struct{ data, want string }{
		"field":        {`{"chrat": {}}`, `unknown field "chrat"`},
		"nested field": {`{"test": {"filters": {"names": []}}}`, `unknown field "names"`},
		"a type":       {`{"force": "yes"}`, "force"},
		"twice":        {`{"id": "a", "id": "b"}`, "duplicate field"},
		"cut off":      {`{"id": "a"`, "unexpected"},
		"two values":   {`{} {}`, "unexpected"},
	} {
		t.Run(name, func(t *testing.T) {
			err := wire.Unmarshal(nil, []byte(row.data), &seatrialv1.DeployRequest{})
			require.ErrorContains(t, err, "decode DeployRequest")
			require.ErrorContains(t, err, row.want)
		})
	}
	require.Error(t, wire.Unmarshal(nil, []byte("\xff\xff"), &seatrialv1.DeployRequest{}))
	require.ErrorIs(t, wire.Unmarshal(map[string][]string{"Content-Type": {"text/plain"}}, nil, &seatrialv1.DeployRequest{}), wire.ErrContentType)
}

func TestUnmarshalKnownLeavesOutWhatANewerServiceAdded(t *testing.T) {
	got := &seatrialv1.Outcome{}
	require.NoError(t, wire.UnmarshalKnown(nil, []byte(`{"id": "1", "colour": "green", "testRun": {"verdict": "passed", "mood": 1}}`), got))
	require.Equal(t, "1", got.GetId())
	require.Equal(t, "passed", got.GetTestRun().GetVerdict())
	require.Error(t, wire.UnmarshalKnown(nil, []byte(`{"id": 1`), got))
	require.ErrorIs(t, wire.UnmarshalKnown(map[string][]string{"Content-Type": {"text/plain"}}, nil, got), wire.ErrContentType)
}

func TestMarshalJSONIsCompactAndAlwaysTheSame(t *testing.T) {
	o := &seatrialv1.Outcome{
		Id: "1", Message: "a < b & c", Time: timestamppb.New(timestamppb.Now().AsTime()),
		Requested: &seatrialv1.ChartRevision{Annotations: map[string]string{"b": "2", "a": "1", "c": " spaced  out "}},
	}
	first, err := wire.MarshalJSON(o)
	require.NoError(t, err)
	for range 50 {
		again, err := wire.MarshalJSON(proto.Clone(o))
		require.NoError(t, err)
		require.Equal(t, string(first), string(again))
	}
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, first))
	require.Equal(t, compact.String(), string(first))
	require.Contains(t, string(first), `{"a":"1","b":"2","c":" spaced  out "}`)
}

// Whatever decodes is the same after another way there and back, in either form; nothing makes it panic.
func FuzzUnmarshal(f *testing.F) {
	request := &seatrialv1.DeployRequest{Id: "1", Test: &seatrialv1.TestOptions{Filters: &seatrialv1.TestFilters{NotName: []string{"a"}}}}
	data, err := proto.Marshal(request)
	require.NoError(f, err)
	f.Add("", data)
	f.Add(wire.Protobuf, data)
	f.Add("", []byte(`{"test": {"filters": {"!name": ["web-slow"]}}}`))
	f.Add(wire.JSON, []byte(`{"values": {"a": [1, null, {"b": "c"}]}, "upgrade": {"wait": false, "labels": {"x": "y"}}}`))
	f.Add("Application/JSON; charset=utf-8", []byte(`{"unknown": 1}`))
	f.Add("text/yaml", []byte(`a: b`))
	f.Fuzz(func(t *testing.T, contentType string, data []byte) {
		headers := map[string][]string{}
		if contentType != "" {
			headers["cOnTeNt-TyPe"] = []string{contentType}
		}
		got := &seatrialv1.DeployRequest{}
		if wire.Unmarshal(headers, data, got) != nil {
			return
		}
		if binary, err := proto.Marshal(got); err == nil {
			again := &seatrialv1.DeployRequest{}
			require.NoError(t, wire.Unmarshal(map[string][]string{"Content-Type": {wire.Protobuf}}, binary, again))
			require.True(t, proto.Equal(got, again))
		}
		got.ProtoReflect().SetUnknown(nil) // JSON has no room for them
		text, err := wire.MarshalJSON(got)
		if err != nil {
			return // what JSON cannot say, such as a number that is none
		}
		again := &seatrialv1.DeployRequest{}
		require.NoError(t, wire.Unmarshal(nil, text, again))
		repeated, err := wire.MarshalJSON(again)
		require.NoError(t, err)
		require.Equal(t, string(text), string(repeated))
	})
}
