package attribute

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// One annotation, no options: it becomes the attribute, or is left out for the reason.
func TestOneAnnotation(t *testing.T) {
	t.Parallel()
	const ok = "v"
	for _, row := range []struct {
		name       string
		key, value string
		attribute  string // name
		want       string // value
		reason     string
	}{
		{name: "plain", key: "team", value: ok, attribute: "team", want: ok},
		{name: "underscore", key: "commit_sha", value: "4f2d9c1", attribute: "commitsha", want: "4f2d9c1"},
		{name: "upper case", key: "CommitSHA", value: ok, attribute: "commitsha", want: ok},
		{name: "digits", key: "slsa-level3", value: ok, attribute: "slsalevel3", want: ok},
		{name: "short with a slash", key: "acme.io/team", value: ok, attribute: "acmeioteam", want: ok},
		{name: "20 characters", key: "abcdefghij-klmnopqrst", value: ok, attribute: "abcdefghijklmnopqrst", want: ok},
		{name: "over 20, with a slash", key: "org.opencontainers.image/licence", value: ok, attribute: "licence", want: ok},
		{name: "over 20, the last of two slashes", key: "registry.example.com/build/number", value: ok, attribute: "number", want: ok},
		{name: "over 20, without a slash", key: "org.opencontainers.image.revision", value: ok, reason: "the name orgopencontainersimagerevision would have 30 characters, the limit is 20"},
		{name: "21 characters after the slash", key: "example/abcdefghijklmnopqrstu", value: ok, reason: "the name abcdefghijklmnopqrstu would have 21 characters, the limit is 20"},
		{name: "over 20, nothing after the slash", key: "registry.example.com/builds/", value: ok, reason: "no ASCII letter or digit"},
		{name: "starts with a digit", key: "2nd", value: ok, reason: "the name 2nd would not start with a letter"},
		{name: "starts with a digit after the slash", key: "registry.example.com/builds/2nd", value: ok, reason: "the name 2nd would not start"},
		{name: "nothing left", key: "_-.", value: ok, reason: "no ASCII letter or digit"},
		{name: "empty key", key: "", value: ok, reason: "no ASCII letter or digit"},
		{name: "letters that are not ASCII are dropped", key: "größe", value: ok, attribute: "gre", want: ok},
		{name: "no letter is folded into ASCII", key: "\u212Aey", value: ok, attribute: "ey", want: ok},
		{name: "full-width letters are none", key: "ｔｅａｍ", value: ok, reason: "no ASCII letter or digit"},

		{name: "core attribute", key: "time", value: ok, reason: "the name time is reserved"},
		{name: "core attribute, disguised", key: "Spec-Version", value: ok, reason: "the name specversion is reserved"},
		{name: "data", key: "data", value: ok, reason: "the name data is reserved"},
		{name: "datacontenttype", key: "dataContentType", value: ok, reason: "reserved"},
		{name: "core of the past", key: "schema_url", value: ok, reason: "reserved"},
		{name: "documented extension", key: "traceparent", value: ok, reason: "reserved"},
		{name: "documented extension, severity", key: "severity-text", value: ok, reason: "reserved"},
		{name: "documented extension, deprecation", key: "deprecated", value: ok, reason: "reserved"},
		{name: "documented extension, data reference", key: "data-ref", value: ok, reason: "reserved"},
		{name: "documented extension, authentication", key: "auth_id", value: ok, reason: "reserved"},
		{name: "our own", key: "revision", value: ok, reason: "the name revision is reserved"},
		{name: "our own, for later", key: "seatrial.dev/x", value: ok, reason: "reserved"},
		{name: "of Knative", key: "knative.dev/error", value: ok, reason: "reserved"},
		{name: "reserved after the slash", key: "org.opencontainers.image/source", value: ok, reason: "the name source is reserved"},

		{name: "one newline at the end", key: "team", value: "web\n", attribute: "team", want: "web"},
		{name: "one newline of Windows at the end", key: "team", value: "web\r\n", attribute: "team", want: "web"},
		{name: "two newlines at the end", key: "team", value: "web\n\n", reason: "control character U+000A"},
		{name: "newline inside", key: "changes", value: "- one\n- two\n", reason: "control character U+000A"},
		{name: "carriage return at the end", key: "team", value: "web\r", reason: "control character U+000D"},
		{name: "tab", key: "team", value: "a\tb", reason: "control character U+0009"},
		{name: "delete", key: "team", value: "a\x7f", reason: "control character U+007F"},
		{name: "C1 control", key: "team", value: "a\u0085b", reason: "control character U+0085"},
		{name: "empty", key: "team", value: "", reason: "the value is empty"},
		{name: "only a newline", key: "team", value: "\n", reason: "the value is empty"},
		{name: "256 bytes", key: "team", value: strings.Repeat("x", 256), attribute: "team", want: strings.Repeat("x", 256)},
		{name: "256 bytes and a newline", key: "team", value: strings.Repeat("x", 256) + "\n", attribute: "team", want: strings.Repeat("x", 256)},
		{name: "257 bytes", key: "team", value: strings.Repeat("x", 257), reason: "the value has 257 bytes, the limit is 256"},
		{name: "bytes, not characters", key: "team", value: strings.Repeat("ü", 129), reason: "258 bytes"},
		{name: "spaces stay", key: "team", value: " a b ", attribute: "team", want: " a b "},
		{name: "quotes and percent stay", key: "team", value: `100% "sure"`, attribute: "team", want: `100% "sure"`},
		{name: "emoji", key: "mood", value: "🚢", attribute: "mood", want: "🚢"},
		{name: "invalid UTF-8", key: "team", value: "a\xff", reason: "not valid UTF-8"},
		{name: "half of a surrogate pair", key: "team", value: "\xed\xa0\x80", reason: "not valid UTF-8"},
		{name: "noncharacter of a plane", key: "team", value: "a\U0001FFFE", reason: "U+1FFFE, which is not a character"},
		{name: "noncharacter of the block", key: "team", value: "a\uFDD0", reason: "U+FDD0, which is not a character"},
		{name: "private use is legal", key: "team", value: "\uE000", attribute: "team", want: "\uE000"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			m := Map(map[string]string{row.key: row.value}, Options{})
			if row.reason != "" {
				require.Empty(t, m.Attributes)
				require.Len(t, m.LeftOut, 1)
				require.Equal(t, row.key, m.LeftOut[0].GetAnnotation())
				require.Contains(t, m.LeftOut[0].GetReason(), row.reason)
				return
			}
			require.Equal(t, map[string]string{row.attribute: row.want}, m.Attributes)
			require.Equal(t, map[string]string{row.key: row.attribute}, m.Names)
			require.Empty(t, m.LeftOut)
		})
	}
}

// Several annotations: which attributes there are, and which annotations have none.
func TestSeveralAnnotations(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		annotations map[string]string
		options     Options
		want        map[string]string
		leftOut     []string // "key: part of the reason", in key order
	}{
		{
			name:        "two keys with one name: neither",
			annotations: map[string]string{"commit_sha": "1", "commit-sha": "2", "team": "web"},
			want:        map[string]string{"team": "web"},
			leftOut:     []string{`commit-sha: "commit_sha" has the same attribute name commitsha`, `commit_sha: "commit-sha" has the same`},
		},
		{
			name:        "one name although one value is illegal: still neither",
			annotations: map[string]string{"a-b": "1", "a_b": "\n\n"},
			want:        map[string]string{},
			leftOut:     []string{"a-b: the same attribute name", "a_b: the same attribute name"},
		},
		{
			name:        "an alias collides like any name",
			annotations: map[string]string{"git": "1", "commit_sha": "2"},
			options:     Options{Aliases: map[string]string{"git": "commitsha"}},
			want:        map[string]string{},
			leftOut:     []string{"commit_sha: same attribute name", "git: same attribute name"},
		},
		{
			name:        "a denied key collides with nothing",
			annotations: map[string]string{"commit_sha": "1", "commit-sha": "2"},
			options:     Options{Deny: []string{"commit-sha"}},
			want:        map[string]string{"commitsha": "1"},
			leftOut:     []string{"commit-sha: deny list"},
		},
		{
			name:        "an alias for a key that is too long",
			annotations: map[string]string{"org.opencontainers.image.revision": "4f2d9c1"},
			options:     Options{Aliases: map[string]string{"org.opencontainers.image.revision": "vcsrevision"}},
			want:        map[string]string{"vcsrevision": "4f2d9c1"},
		},
		{
			name:        "an alias passes the allow list and has no prefix, and deny wins",
			annotations: map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"},
			options: Options{
				Aliases: map[string]string{"a": "alpha", "b": "beta"},
				Allow:   []string{"c"}, Deny: []string{"b"}, Prefix: "chart",
			},
			want:    map[string]string{"alpha": "1", "chartc": "3"},
			leftOut: []string{"b: deny list", "d: not on the operator's allow list"},
		},
		{
			name:        "aliases only",
			annotations: map[string]string{"a": "1", "b": "2"},
			options:     Options{Aliases: map[string]string{"a": "alpha"}, AliasesOnly: true},
			want:        map[string]string{"alpha": "1"},
			leftOut:     []string{"b: aliases only"},
		},
		{
			name:        "patterns end at a slash",
			annotations: map[string]string{"artifacthub.io/license": "1", "artifacthub.io/x/y": "2", "licence": "3"},
			options:     Options{Deny: []string{"artifacthub.io/*"}},
			want:        map[string]string{"artifacthubioxy": "2", "licence": "3"},
			leftOut:     []string{"artifacthub.io/license: deny list"},
		},
		{
			name:        "a prefix counts, makes digits legal, and frees reserved names",
			annotations: map[string]string{"2nd": "1", "time": "2", "abcdefghijklmnopq": "3", "example.io/abcdefghij": "4"},
			options:     Options{Prefix: "chart"},
			want:        map[string]string{"chart2nd": "1", "charttime": "2", "chartabcdefghij": "4"},
			leftOut:     []string{"abcdefghijklmnopq: 22 characters"},
		},
		{
			name:        "a prefix that makes a reserved name",
			annotations: map[string]string{"name": "1"},
			options:     Options{Prefix: "chart"},
			want:        map[string]string{},
			leftOut:     []string{"name: the name chartname is reserved"},
		},
		{name: "none", annotations: nil, want: map[string]string{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, row.options.Validate())
			m := Map(row.annotations, row.options)
			require.Equal(t, row.want, m.Attributes)
			require.Len(t, m.LeftOut, len(row.leftOut))
			for i, want := range row.leftOut {
				key, reason, _ := strings.Cut(want, ": ")
				require.Equal(t, key, m.LeftOut[i].GetAnnotation())
				require.Contains(t, m.LeftOut[i].GetReason(), reason)
			}
		})
	}
}

func TestTheTotalIsSpentInKeyOrder(t *testing.T) {
	t.Parallel()
	annotations := map[string]string{"zz": "small"}
	for i := range 16 {
		annotations[fmt.Sprintf("k%02d", i)] = strings.Repeat("x", 253) // 256 bytes with the name: 16 fill 4 KiB
	}
	m := Map(annotations, Options{})
	require.Len(t, m.Attributes, 16)
	require.Len(t, m.LeftOut, 1)
	require.Equal(t, "zz", m.LeftOut[0].GetAnnotation())
	require.Equal(t, "with it the attributes would have 4103 bytes, the limit is 4096", m.LeftOut[0].GetReason())

	annotations["a"] = "first"
	m = Map(annotations, Options{})
	require.Equal(t, "first", m.Attributes["a"])
	require.Equal(t, "small", m.Attributes["zz"], "what is small still fits after what did not")
	require.Len(t, m.LeftOut, 1)
	require.Equal(t, "k15", m.LeftOut[0].GetAnnotation())
}

func TestOptionsValidate(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		options Options
		want    []string
	}{
		{name: "none"},
		{name: "good", options: Options{Aliases: map[string]string{"a/b": "ab1"}, Allow: []string{"x.io/*"}, Deny: []string{"y"}, Prefix: "c"}},
		{name: "alias with other characters", options: Options{Aliases: map[string]string{"a": "commit_sha"}}, want: []string{`alias "commit_sha" of annotation "a": want lower-case letters and digits`}},
		{name: "empty alias", options: Options{Aliases: map[string]string{"a": ""}}, want: []string{`alias "" of annotation "a": want`}},
		{name: "reserved alias", options: Options{Aliases: map[string]string{"a": "time"}}, want: []string{"the name time is reserved"}},
		{name: "long alias", options: Options{Aliases: map[string]string{"a": strings.Repeat("x", 21)}}, want: []string{"21 characters"}},
		{name: "one alias for two keys", options: Options{Aliases: map[string]string{"a": "x", "b": "x"}}, want: []string{`alias "x" stands for both annotations "a" and "b"`}},
		{name: "malformed patterns", options: Options{Allow: []string{"["}, Deny: []string{""}}, want: []string{`pattern "["`, `pattern ""`}},
		{name: "prefix with other characters", options: Options{Prefix: "a-"}, want: []string{`prefix "a-"`}},
		{name: "prefix without a letter first", options: Options{Prefix: "1a"}, want: []string{`prefix "1a": does not start with a letter`}},
		{name: "prefix that leaves no room", options: Options{Prefix: strings.Repeat("x", 20)}, want: []string{"want at most 19"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			err := row.options.Validate()
			if row.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrOptions)
			for _, want := range row.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestMapHoldsWhatItPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, promises)
}

func FuzzMap(f *testing.F) { f.Fuzz(rapid.MakeFuzz(promises)) }

var legalName = regexp.MustCompile(`^[a-z][a-z0-9]{0,19}$`)

// promises checks what holds for all annotations and options.
func promises(t *rapid.T) {
	// Few characters and some known words, so that collisions, reserved and long names come up.
	key := rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune("abAB12_-./é")), 0, 24, -1),
		rapid.SampledFrom([]string{"time", "commit_sha", "commit-sha", "data", "knative.dev/x", "org.opencontainers.image/licence"}),
		rapid.String(),
	)
	value := rapid.OneOf(rapid.String(), rapid.StringN(0, 300, -1), rapid.SampledFrom([]string{"x", "x\n", "\uFFFE", "\xff"}),
		rapid.Map(rapid.IntRange(200, 260), func(n int) string { return strings.Repeat("x", n) }))
	annotations := rapid.MapOfN(key, value, 0, 40).Draw(t, "annotations")
	options := rapid.Custom(func(t *rapid.T) Options {
		return Options{
			Aliases:     rapid.MapOfN(key, rapid.StringMatching("[a-z]{1,3}"), 0, 3).Draw(t, "aliases"),
			AliasesOnly: rapid.Bool().Draw(t, "aliases only"),
			Allow:       rapid.SliceOfN(rapid.SampledFrom([]string{"*", "a*", "*/*"}), 0, 2).Draw(t, "allow"),
			Deny:        rapid.SliceOfN(rapid.SampledFrom([]string{"a*", "b"}), 0, 1).Draw(t, "deny"),
			Prefix:      rapid.StringMatching("([a-z][a-z0-9]{0,5})?").Draw(t, "prefix"),
		}
	}).Filter(func(o Options) bool { return o.Validate() == nil }).Draw(t, "options")

	before := maps.Clone(annotations)
	m := Map(annotations, options)
	require.Equal(t, before, annotations, "the annotations are not changed")

	// Each annotation is an attribute, unchanged, or left out with a reason; nothing else is there.
	require.Len(t, m.Names, len(m.Attributes))
	require.Len(t, annotations, len(m.Names)+len(m.LeftOut))
	total := 0
	for key, name := range m.Names {
		value := m.Attributes[name]
		require.Regexp(t, legalName, name)
		require.False(t, isReserved(name), name)
		require.Equal(t, value, trimNewline(annotations[key]))
		require.Empty(t, CheckValue(value))
		total += len(name) + len(value)
	}
	require.LessOrEqual(t, total, MaxTotal)
	require.True(t, slices.IsSortedFunc(m.LeftOut, func(a, b *seatrialv1.LeftOut) int { return strings.Compare(a.GetAnnotation(), b.GetAnnotation()) }))
	for _, out := range m.LeftOut {
		require.Contains(t, annotations, out.GetAnnotation())
		require.NotContains(t, m.Names, out.GetAnnotation())
		require.NotEmpty(t, out.GetReason())
	}

	// The order in which a map is filled does not matter.
	again := map[string]string{}
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(annotations))) {
		again[key] = annotations[key]
	}
	require.Equal(t, m, Map(again, options))

	// One more annotation changes no other one's attribute, unless the reason says so.
	extra := key.Filter(func(key string) bool { _, there := annotations[key]; return !there }).Draw(t, "extra key")
	again[extra] = value.Draw(t, "extra value")
	more := Map(again, options)
	reasons := map[string]string{}
	for _, out := range more.LeftOut {
		reasons[out.GetAnnotation()] = out.GetReason()
	}
	for key, name := range m.Names {
		if more.Names[key] == name && more.Attributes[name] == m.Attributes[name] {
			continue
		}
		require.NotContains(t, more.Names, key)
		require.Regexp(t, "has the same attribute name|the limit is 4096", reasons[key])
	}
}
