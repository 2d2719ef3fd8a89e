package binding

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// example has a value of each kind.
func example() event.Event {
	e := event.New()
	e.SetID("r1/deployed")
	e.SetSource("/seatrial/local/shop/web")
	e.SetType("dev.seatrial.deployed.v1")
	e.SetSubject("local/shop/web")
	e.SetTime(time.Date(2026, 3, 4, 5, 6, 7, 890_000_000, time.UTC))
	e.SetExtension("helmrevision", int32(7))
	e.SetExtension("team", `Euro € 😀 100% "sure"`)
	e.SetDataContentType("application/json")
	e.DataEncoded = []byte(`{"html":"<b>&</b>"}`)
	return e
}

func TestBinaryModeOnTheWire(t *testing.T) {
	t.Parallel()
	header, data, err := Encode(example(), Binary)
	require.NoError(t, err)
	require.Equal(t, nats.Header{
		"ce-specversion":     {"1.0"},
		"ce-id":              {"r1/deployed"},
		"ce-source":          {"/seatrial/local/shop/web"},
		"ce-type":            {"dev.seatrial.deployed.v1"},
		"ce-subject":         {"local/shop/web"},
		"ce-time":            {"2026-03-04T05:06:07.89Z"},
		"ce-datacontenttype": {"application/json"},
		"ce-helmrevision":    {"7"},
		"ce-team":            {"Euro%20%E2%82%AC%20%F0%9F%98%80%20100%25%20%22sure%22"},
	}, header)
	require.Equal(t, string(example().Data()), string(data))
}

func TestStructuredModeOnTheWire(t *testing.T) {
	t.Parallel()
	header, data, err := Encode(example(), Structured)
	require.NoError(t, err)
	require.Equal(t, nats.Header{"Content-Type": {"application/cloudevents+json"}}, header)
	want := `{"specversion":"1.0","id":"r1/deployed","source":"/seatrial/local/shop/web",` +
		`"type":"dev.seatrial.deployed.v1","subject":"local/shop/web","datacontenttype":"application/json",` +
		`"time":"2026-03-04T05:06:07.89Z","data":{"html":"<b>&</b>"},"helmrevision":7,"team":"Euro € 😀 100% \"sure\""}`
	require.Equal(t, want, string(data))
}

func TestSizeCountsHeadersAndPayload(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Binary, Structured} {
		header, data, err := Encode(example(), mode)
		require.NoError(t, err)
		msg := nats.Msg{Header: header, Data: data}
		const line, end = "NATS/1.0\r\n", "\r\n"
		size, err := Size(example(), mode)
		require.NoError(t, err)
		require.Equal(t, msg.Size()-len(line)-len(end), size, mode)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	minimal := func(more ...string) nats.Header {
		header := nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/s"}, "ce-type": {"t"}}
		for i := 0; i < len(more); i += 2 {
			header[more[i]] = append(header[more[i]], more[i+1])
		}
		return header
	}
	for _, row := range []struct {
		name   string
		header nats.Header
		data   string
		want   map[string]any // extensions
		err    string
	}{
		{name: "names in any case", header: minimal("CE-Team", "web", "Ce-TIME", "2026-03-04T05:06:07Z"), want: map[string]any{"team": "web"}},
		{name: "other headers", header: minimal("Nats-Msg-Id", "1", "Content-Type", "application/json"), want: nil},
		{name: "needlessly encoded, lower-case digits", header: minimal("ce-team", "%77e%e2%82%ac"), want: map[string]any{"team": "we€"}},
		{name: "in double quotes", header: minimal("ce-team", `"a \"b\" \\ %25"`), want: map[string]any{"team": `a "b" \ %`}},
		{name: "white space around", header: minimal("ce-team", " a b "), want: map[string]any{"team": "a b"}},
		{
			name: "structured, whatever the case and parameters", header: nats.Header{"content-TYPE": {"Application/CloudEvents+json; charset=utf-8"}},
			data: `{"specversion":"1.0","id":"1","source":"/s","type":"t","n":7}`, want: map[string]any{"n": int32(7)},
		},

		{name: "overlong UTF-8", header: minimal("ce-team", "%C0%A0"), err: "ce-team: it decodes to something that is not valid UTF-8"},
		{name: "half an escape", header: minimal("ce-team", "100%"), err: "% at the end"},
		{name: "no hexadecimal digits", header: minimal("ce-team", "%zz"), err: `"zz" after %`},
		{name: "no closing quote", header: minimal("ce-team", `"a`), err: "closing quote is missing"},
		{name: "behind the quote", header: minimal("ce-team", `"a"b`), err: "behind the closing quote"},
		{name: "backslash at the end", header: minimal("ce-team", `"a\`), err: "backslash at the end"},
		{name: "twice", header: minimal("ce-team", "a", "CE-team", "b"), err: "ce-team is not there exactly once"},
		{name: "two values", header: minimal("ce-team", "a", "ce-team", "b"), err: "ce-team is not there exactly once"},
		{name: "data as an attribute", header: minimal("ce-data", "a"), err: "data is no attribute"},
		{name: "illegal name", header: minimal("ce-commit_sha", "a"), err: "commit_sha"},
		{name: "time", header: minimal("ce-time", "noon"), err: "noon"},
		{name: "no event at all", header: nats.Header{}, err: `ce-specversion is "": want 1.0`},
		{name: "an old version", header: nats.Header{"ce-specversion": {"0.3"}}, err: `is "0.3": want 1.0`},
		{name: "no id", header: nats.Header{"ce-specversion": {"1.0"}, "ce-source": {"/s"}, "ce-type": {"t"}}, err: "id: MUST be a non-empty string"},
		{name: "structured and broken", header: nats.Header{"Content-Type": {"application/cloudevents+json"}}, data: `{"specversion":`, err: "invalid CloudEvent"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			e, err := Decode(row.header, []byte(row.data))
			if row.err != "" {
				require.ErrorIs(t, err, ErrInvalid)
				require.ErrorContains(t, err, row.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "1", e.ID())
			require.Equal(t, "/s", e.Source())
			require.Equal(t, "t", e.Type())
			require.Equal(t, row.want, e.Extensions())
		})
	}
}

func TestEncodeRefusesWhatWouldGetLost(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*event.Event){
		"an illegal name":         func(e *event.Event) { e.SetExtension("commit_sha", "1") },
		"an extension named data": func(e *event.Event) { e.SetExtension("data", "1") },
		"no id":                   func(e *event.Event) { e.SetID("") },
		"a value of no type":      func(e *event.Event) { e.SetExtension("x", struct{}{}) },
	} {
		for _, mode := range []Mode{Binary, Structured} {
			t.Run(name+" "+string(mode), func(t *testing.T) {
				t.Parallel()
				e := example()
				spoil(&e)
				_, _, err := Encode(e, mode)
				require.ErrorIs(t, err, ErrInvalid)
				_, err = Size(e, mode)
				require.ErrorIs(t, err, ErrInvalid)
			})
		}
	}
}

func TestModeIsReadFromText(t *testing.T) {
	t.Parallel()
	var mode Mode
	require.NoError(t, mode.UnmarshalText([]byte("structured")))
	require.Equal(t, Structured, mode)
	require.EqualError(t, mode.UnmarshalText([]byte("batch")), "want binary or structured")
	text, err := mode.MarshalText()
	require.NoError(t, err)
	require.Equal(t, "structured", string(text))
}

func TestEventsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, roundTrip)
}

func FuzzRoundTrip(f *testing.F) { f.Fuzz(rapid.MakeFuzz(roundTrip)) }

// roundTrip checks that a message holds the whole event, and only what a NATS header may hold.
func roundTrip(t *rapid.T) {
	text := rapid.String().Filter(func(s string) bool { return strings.TrimSpace(s) != "" })
	name := rapid.StringMatching("x[a-z0-9]{0,19}")
	e := example()
	e.SetID(text.Draw(t, "id"))
	e.SetSubject(text.Draw(t, "subject"))
	for name, value := range rapid.MapOfN(name, rapid.String(), 0, 5).Draw(t, "extensions") {
		e.SetExtension(name, value)
	}
	for _, mode := range []Mode{Binary, Structured} {
		header, data, err := Encode(e, mode)
		require.NoError(t, err)
		for key, values := range header {
			require.Len(t, values, 1)
			require.Equal(t, -1, strings.IndexFunc(values[0], func(r rune) bool { return r <= ' ' || r >= 0x7F }), "%s: %q", key, values[0])
		}
		back, err := Decode(header, data)
		require.NoError(t, err)
		if mode == Binary {
			require.Equal(t, "7", back.Extensions()["helmrevision"], "binary mode knows no numbers")
			back.SetExtension("helmrevision", int32(7))
		}
		require.Equal(t, e, back)
	}
}

func FuzzPercentDecode(f *testing.F) {
	for _, seed := range []string{"plain", "Euro%20%E2%82%AC", `"a \"b\""`, "%", "%C0%A0", `"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		decoded, err := percentDecode(value)
		if err != nil {
			return
		}
		require.True(t, utf8.ValidString(decoded))
		again, err := percentDecode(percentEncode(decoded))
		require.NoError(t, err)
		require.Equal(t, decoded, again)
	})
}
