package link

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPick(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		taken []string
		want  string
	}{
		"nothing taken":                    {nil, "10.231.0.0/30"},
		"elsewhere":                        {[]string{"192.0.2.0/24", "10.230.0.0/16"}, "10.231.0.0/30"},
		"beside other clusters":            {[]string{"10.231.0.1/30", "10.231.0.4/30"}, "10.231.0.8/30"},
		"a gap is filled":                  {[]string{"10.231.0.1/30", "10.231.0.9/30"}, "10.231.0.4/30"},
		"an address within the block":      {[]string{"10.231.0.2/32"}, "10.231.0.4/30"},
		"a wider network":                  {[]string{"10.231.0.0/23"}, "10.231.2.0/30"},
		"the default route is no obstacle": {[]string{"0.0.0.0/0"}, "10.231.0.0/30"},
		"all of 10.0.0.0/8 is a VPN's":     {[]string{"10.0.0.0/8"}, "172.30.0.0/30"},
		"the last range":                   {[]string{"10.0.0.0/8", "172.16.0.0/12"}, "192.168.231.0/30"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := pick(prefixes(test.taken))
			require.NoError(t, err)
			require.Equal(t, test.want, got.String())
		})
	}
}

func TestPickFindsNothing(t *testing.T) {
	t.Parallel()
	_, err := pick(prefixes([]string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"}))
	require.ErrorIs(t, err, ErrNoAddress)
}

func prefixes(texts []string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}
