package subject_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/subject"
)

var web = subject.Release{Cluster: "local", Namespace: "shop", Name: "web"}

func TestNames(t *testing.T) {
	dotted := subject.Release{Cluster: "prod.eu", Namespace: "shop", Name: "my.web"}
	for want, got := range map[string]string{
		"seatrial.request.deploy.local.shop.web":            subject.Request("deploy", web),
		"seatrial.request.deploy.prod_eu.shop.my_web":       subject.Request("deploy", dotted),
		"seatrial.command.execute.local.shop.web":           subject.CommandExecute(web),
		"seatrial.command.test.local.shop.web":              subject.CommandTest("", web),
		"seatrial.command.test-gpu.local.shop.web":          subject.CommandTest("gpu", web),
		"seatrial.command.test-gpu_a.prod_eu.shop.my_web":   subject.CommandTest("gpu.a", dotted),
		"seatrial.command.execute.prod_eu.>":                subject.ExecuteFilter("prod.eu"),
		"seatrial.command.test.prod_eu.>":                   subject.TestFilter("prod.eu", ""),
		"seatrial.command.test-gpu_a.prod_eu.>":             subject.TestFilter("prod.eu", "gpu.a"),
		"executor-prod_eu":                                  subject.ConsumerExecutor("prod.eu"),
		"tester-prod_eu":                                    subject.ConsumerTester("prod.eu", ""),
		"tester-prod_eu__gpu_a":                             subject.ConsumerTester("prod.eu", "gpu.a"),
		"seatrial.outcome.tested.local.shop.web":            subject.Outcome("tested", web),
		"seatrial.outcome.tested.>":                         subject.OutcomeFilter("tested"),
		"seatrial.event.tested.local.shop.web":              subject.Event("tested", web),
		"seatrial.dead.planner":                             subject.Dead("planner"),
		"seatrial.log.prod_eu.shop.my_web.7.web_smoke.main": subject.Log(dotted, 7, "web.smoke", "main"),
		"seatrial.api.wait.local.shop.web":                  subject.API("wait", web),
		"seatrial.api.wait.*.*.*":                           subject.APIFilter("wait"),
		"prod_eu.shop.my_web":                               dotted.Key(),
		"prod.eu/shop/my.web":                               dotted.String(),
	} {
		require.Equal(t, want, got)
	}
}

func TestNamesAreInTheirStreams(t *testing.T) {
	for all, name := range map[string]string{
		subject.AllRequests: subject.Request("deploy", web),
		subject.AllCommands: subject.CommandTest("gpu", web),
		subject.AllOutcomes: subject.Outcome("tested", web),
		subject.AllEvents:   subject.Event("tested", web),
		subject.AllDead:     subject.Dead("planner"),
	} {
		require.True(t, strings.HasPrefix(name, strings.TrimSuffix(all, ">")), name)
	}
	// A subject that a stream takes would get two answers.
	for _, all := range []string{subject.AllRequests, subject.AllCommands, subject.AllOutcomes, subject.AllEvents, subject.AllReceipts, subject.AllDead} {
		require.False(t, strings.HasPrefix(subject.API("wait", web), strings.TrimSuffix(all, ">")), all)
	}
}

func TestParseRelease(t *testing.T) {
	long := strings.Repeat("a", 53)
	for name, row := range map[string]struct {
		text string
		want subject.Release
	}{
		"plain":        {"local/shop/web", web},
		"dots":         {"prod.eu/shop/my.web", subject.Release{Cluster: "prod.eu", Namespace: "shop", Name: "my.web"}},
		"digits":       {"1/2/3", subject.Release{Cluster: "1", Namespace: "2", Name: "3"}},
		"longest name": {"local/shop/" + long, subject.Release{Cluster: "local", Namespace: "shop", Name: long}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := subject.ParseRelease(row.text)
			require.NoError(t, err)
			require.Equal(t, row.want, got)
			require.Equal(t, row.text, got.String())
		})
	}
}

func TestParseReleaseRefuses(t *testing.T) {
	for name, row := range map[string]struct{ text, want string }{
		"nothing":               {"", "want cluster/namespace/name"},
		"two parts":             {"shop/web", "want cluster/namespace/name"},
		"four parts":            {"a/b/c/d", "want cluster/namespace/name"},
		"no cluster":            {"/shop/web", `cluster ""`},
		"upper case":            {"local/Shop/web", `namespace "Shop"`},
		"underscore":            {"local/shop/my_web", `release "my_web"`},
		"wildcard":              {"local/*/web", `namespace "*"`},
		"all":                   {"local/shop/>", `release ">"`},
		"space":                 {"local/shop/we b", `release "we b"`},
		"newline at the end":    {"local/shop/web\n", `release "web\n"`},
		"hyphen first":          {"local/shop/-web", `release "-web"`},
		"hyphen last":           {"local/shop/web-", `release "web-"`},
		"hyphen beside a dot":   {"local/shop/a-.b", `release "a-.b"`},
		"two dots":              {"local/shop/a..b", `release "a..b"`},
		"dot in the namespace":  {"local/sh.op/web", "no namespace of Kubernetes has a dot"},
		"long name":             {"local/shop/" + strings.Repeat("a", 54), "at most 53"},
		"long namespace":        {"local/" + strings.Repeat("a", 64) + "/web", "at most 63"},
		"long cluster":          {strings.Repeat("a", 64) + "/shop/web", "at most 63"},
		"a letter of elsewhere": {"local/shop/wéb", "release"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := subject.ParseRelease(row.text)
			require.ErrorIs(t, err, subject.ErrInvalid)
			require.ErrorContains(t, err, row.want)
		})
	}
}

func TestParseSubjectsRefuse(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":           "",
		"another kind":      "seatrial.event.deploy.local.shop.web",
		"too short":         "seatrial.request.deploy.local.shop",
		"too long":          "seatrial.request.deploy.local.shop.web.x",
		"empty token":       "seatrial.request.deploy..shop.web",
		"empty verb":        "seatrial.request..local.shop.web",
		"wildcard":          "seatrial.request.deploy.*.shop.web",
		"all":               "seatrial.request.deploy.local.shop.>",
		"upper case":        "seatrial.request.deploy.local.shop.Web",
		"only a prefix":     "seatrial.request.",
		"underscore at end": "seatrial.request.deploy.local.shop.web_",
		"dot in namespace":  "seatrial.request.deploy.local.sh_op.web",
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := subject.ParseRequest(text)
			require.ErrorIs(t, err, subject.ErrInvalid)
		})
	}
}

// A cluster's consumer must not be taken for another one's pool.
func TestConsumersNeverShareAName(t *testing.T) {
	names := map[string]string{}
	for _, cluster := range []string{"a", "a.b", "a-b", "b"} {
		for _, pool := range []string{"", "a", "b", "a.b", "a-b"} {
			name := subject.ConsumerTester(cluster, pool)
			require.Empty(t, names[name], name)
			names[name] = cluster + "/" + pool
		}
	}
	require.Error(t, subject.ValidateCluster("a..b"))
	require.Error(t, subject.ValidateCluster("a_b"))
	require.NoError(t, subject.ValidatePool("gpu.a"))
	require.ErrorContains(t, subject.ValidatePool("Gpu"), `pool "Gpu"`)
	require.Error(t, subject.ValidatePool(""))
}

// Whatever parses is built again as it was, by every parser; and a valid release survives the way there and back.
func FuzzParseSubject(f *testing.F) {
	for _, seed := range []string{
		"seatrial.request.deploy.local.shop.web", "seatrial.outcome.tested.prod_eu.shop.my_web", "seatrial.api.wait.a.b.c",
		"local/shop/web", "prod.eu/shop/my.web", "prod_eu.shop.my_web", "seatrial.request.deploy.local.shop.>", "a/b/c_d", "..", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := subject.ParseRelease(text); err == nil {
			require.Equal(t, text, r.String())
			back, err := subject.ParseKey(r.Key())
			require.NoError(t, err)
			require.Equal(t, r, back)
			verb, back, err := subject.ParseRequest(subject.Request("deploy", r))
			require.NoError(t, err)
			require.Equal(t, "deploy", verb)
			require.Equal(t, r, back)
		} else {
			require.ErrorIs(t, err, subject.ErrInvalid)
		}
		if r, err := subject.ParseKey(text); err == nil {
			require.Equal(t, text, r.Key())
			require.NoError(t, r.Validate())
		}
		for _, kind := range []struct {
			parse func(string) (string, subject.Release, error)
			build func(string, subject.Release) string
		}{
			{subject.ParseRequest, subject.Request},
			{subject.ParseOutcome, subject.Outcome},
			{subject.ParseAPI, subject.API},
		} {
			word, r, err := kind.parse(text)
			if err != nil {
				require.ErrorIs(t, err, subject.ErrInvalid)
				continue
			}
			require.Equal(t, text, kind.build(word, r))
			require.NoError(t, r.Validate())
			require.NotEmpty(t, word)
		}
	})
}

func TestListsEndAtWhatTheyList(t *testing.T) {
	for want, row := range map[string]struct{ cluster, namespace, keys string }{
		"seatrial.api.list":              {"", "", ">"},
		"seatrial.api.list.prod_eu":      {"prod.eu", "", "prod_eu.>"},
		"seatrial.api.list.prod_eu.shop": {"prod.eu", "shop", "prod_eu.shop.>"},
	} {
		require.Equal(t, want, subject.APIList(row.cluster, row.namespace))
		require.Equal(t, row.keys, subject.Keys(row.cluster, row.namespace))
		cluster, namespace, err := subject.ParseAPIList(want)
		require.NoError(t, err, want)
		require.Equal(t, row.cluster, cluster)
		require.Equal(t, row.namespace, namespace)
	}
	require.Equal(t, []string{"seatrial.api.list", "seatrial.api.list.*", "seatrial.api.list.*.*"}, subject.APIListFilters())
	for _, refused := range []string{
		"", "seatrial.api.lists", "seatrial.api.list.", "seatrial.api.list.>", "seatrial.api.list.UPPER", "seatrial.api.list.local.", "seatrial.api.list.local.sh_op",
		"seatrial.api.list.local.shop.web",
	} {
		_, _, err := subject.ParseAPIList(refused)
		require.ErrorIs(t, err, subject.ErrInvalid, refused)
	}
}
