package chart

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// userAgent tells servers who fetches.
const userAgent = "seatrial-planner"

// web is the way to the servers of one fetch, as a http.RoundTripper. What it knows is read anew for each fetch, so that
// a secret that was rotated is picked up. It classes errors where they arise: a server that is away, slow, busy or broken
// is transient.
type web struct {
	// plain are the hosts that may be reached without TLS.
	plain []string
	// secure returns how a host is reached by TLS; nil is the usual way.
	secure func(*url.URL) (*tls.Config, error)
	// login returns the user and password for a server, if it has any. Redirects go through here too, so that a password
	// never follows one to another server.
	login func(*url.URL) (user, password string, ok bool)
	// trust says what to do about a certificate that cannot be checked.
	trust string

	mu         sync.Mutex
	transports map[string]*http.Transport
}

// client returns an HTTP client that goes this way.
func (w *web) client() *http.Client { return &http.Client{Transport: w} }

// close closes the connections.
func (w *web) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, transport := range w.transports {
		transport.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper.
func (w *web) RoundTrip(req *http.Request) (*http.Response, error) {
	transport, err := w.transport(req.URL)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	if w.login != nil {
		if user, password, ok := w.login(req.URL); ok {
			req = req.Clone(req.Context())
			req.SetBasicAuth(user, password)
		}
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, w.unreachable(req.URL.Host, err)
	}
	if busy(resp.StatusCode) {
		_ = resp.Body.Close()
		return nil, fault.New(seatrialv1.ClassTransient, "look why "+req.URL.Host+" cannot answer", "%s answered %s", req.URL.Host, status(resp.StatusCode))
	}
	return resp, nil
}

// busy is what a server says that may answer in a while.
func busy(code int) bool {
	return code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout
}

func status(code int) string { return strings.TrimSpace(fmt.Sprint(code, " ", http.StatusText(code))) }

// transport returns the transport to a server, made once for each.
func (w *web) transport(to *url.URL) (*http.Transport, error) {
	if to.Scheme != "https" && !isPlain(w.plain, to.Host) {
		return nil, refuse("use a server with TLS, or let the operator list "+to.Host+" in --plain-http-registries",
			"%s would be reached by %s, without TLS", to.Host, to.Scheme)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	at := to.Scheme + "://" + to.Host
	if known := w.transports[at]; known != nil {
		return known, nil
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // an archive is what it is, unpacked it has another digest
	if to.Scheme == "https" && w.secure != nil {
		config, err := w.secure(to)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = config
	}
	if w.transports == nil {
		w.transports = map[string]*http.Transport{}
	}
	w.transports[at] = transport
	return transport, nil
}

func isPlain(plain []string, host string) bool {
	return slices.ContainsFunc(plain, func(listed string) bool { return strings.EqualFold(listed, host) })
}

// unreachable classes the error of a server that gave no answer. What will not heal by itself is told at once.
func (w *web) unreachable(host string, err error) error {
	if unknown, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return refuse(w.trust, "the certificate of %s cannot be trusted: %w", host, unknown.Err)
	}
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && string(plain.RecordHeader[:]) == "HTTP/" {
		return refuse("if it is meant to be so, let the operator list "+host+" in --plain-http-registries", "%s does not speak TLS", host)
	}
	if alert, ok := errors.AsType[*net.OpError](err); ok && alert.Op == "remote error" {
		return refuse(w.trust, "%s refuses the TLS connection: %w", host, alert.Err)
	}
	return fault.New(seatrialv1.ClassTransient, "check that the planner can reach "+host, "%s cannot be reached: %s", host, clean(err))
}

// address finds addresses in a text: scheme, user, server and path, the rest.
var address = regexp.MustCompile(`([a-z]+://)(?:[^/\s"@]*@)?([^\s"?#]*)[^\s"]*`)

// clean returns the text of an error of a library, not too long, and with nothing in it that may be a secret.
func clean(err error) string { return withoutSecrets(err.Error()) }

// withoutSecrets takes from addresses the user and what follows a `?`, where storage servers put signatures.
func withoutSecrets(text string) string {
	const most = 300
	text = address.ReplaceAllString(text, "$1$2")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// keys are the files by which a server is trusted, and the planner proves who it is.
type keys struct {
	ca, cert, key string
	// insecure takes any certificate for the server's own.
	insecure bool
}

// config reads the files. An empty name is none. The CA is trusted besides those of the system.
func (k keys) config() (*tls.Config, error) {
	config := &tls.Config{InsecureSkipVerify: k.insecure}
	if k.ca != "" {
		pem, err := os.ReadFile(k.ca)
		if err != nil {
			return nil, operator("put the CA's certificate there", "%w", err)
		}
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, operator("put certificates in PEM there", "%s holds no certificate", k.ca)
		}
	}
	if k.cert != "" || k.key != "" {
		pair, err := tls.LoadX509KeyPair(k.cert, k.key)
		if err != nil {
			return nil, operator("put a certificate and its key in PEM there", "client certificate %s with the key %s: %w", k.cert, k.key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// operator makes the error of a file of the operator's that cannot be used. It is transient: the request is not to blame,
// and files of secrets are replaced while planners run.
func operator(next, format string, args ...any) error {
	return fault.New(seatrialv1.ClassTransient, next, format, args...)
}
