package service

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// checkTimeout is how long a service may take to say whether it is ready.
const checkTimeout = 5 * time.Second

// Ready asks the service whose --http-addr is address, on this machine, whether it is ready. It returns nil if it is,
// else an error with what /readyz said, or why nobody could be asked.
func Ready(ctx context.Context, address string) error {
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" || port == "0" {
		return fmt.Errorf("%w: --http-addr %q: it must name the port to ask at", ErrUsage, address)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		// The address goes to the dialer as it is: that takes :8080, as a listener does, and no proxy gets between.
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service/readyz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	lines, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready:\n%s", strings.TrimSpace(string(lines)))
	}
	return nil
}
