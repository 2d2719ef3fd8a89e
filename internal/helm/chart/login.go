package chart

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// dockerConfig is a Docker config.json, as far as credentials stand in it. Helm's registry/config.json and Podman's
// auth.json are the same. The registry library reads it too, but quotes a password that it cannot read.
type dockerConfig struct {
	Auths map[string]dockerAuth `json:"auths"`
}

type dockerAuth struct {
	// Auth is user:password in base64.
	Auth          string `json:"auth"`
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// login returns the credentials for a repository, none if there are none: of several that fit, those for the longest part
// of its name. The file is read each time.
func (f *Fetcher) login(ref registry.Reference) (auth.Credential, error) {
	origin, text := "$DOCKER_AUTH_CONFIG", []byte(f.RegistryAuth)
	if f.RegistryConfig != "" {
		origin = "--registry-config " + f.RegistryConfig
		read, err := os.ReadFile(f.RegistryConfig)
		if err != nil {
			return auth.Credential{}, operator("put a Docker config.json there", "--registry-config: %w", err)
		}
		text = read
	}
	const repair = "write it as `docker login` or `helm registry login` does"
	config, err := parseLogins(text)
	if err != nil {
		return auth.Credential{}, operator(repair, "%s %w", origin, err)
	}
	var longest string
	var found dockerAuth
	for _, key := range slices.Sorted(maps.Keys(config.Auths)) {
		if server := serverName(key); len(server) > len(longest) && within(server, serverName(ref.Registry)+"/"+ref.Repository) {
			longest, found = server, config.Auths[key]
		}
	}
	login := auth.Credential{Username: found.Username, Password: found.Password, RefreshToken: found.IdentityToken, AccessToken: found.RegistryToken}
	if found.Auth != "" {
		decoded, err := base64.StdEncoding.DecodeString(found.Auth)
		user, password, ok := strings.Cut(string(decoded), ":")
		if err != nil || !ok {
			return auth.Credential{}, operator(repair, "%s: the auth of %s is not user:password in base64", origin, longest)
		}
		login.Username, login.Password = user, password
	}
	return login, nil
}

// parseLogins reads a config.json; an empty text has none.
func parseLogins(text []byte) (config dockerConfig, err error) {
	if len(text) > 0 && json.Unmarshal(text, &config) != nil { // whose error could quote a password
		return config, errors.New("is no Docker config.json")
	}
	return config, nil
}

// serverName brings the many ways to write a server in a config.json to one: no scheme, no version of the API, one name for
// Docker Hub.
func serverName(key string) string {
	if _, rest, ok := strings.Cut(key, "://"); ok {
		key = rest
	}
	key = strings.TrimSuffix(key, "/")
	for _, version := range []string{"/v1", "/v2"} {
		key = strings.TrimSuffix(key, version)
	}
	host, path, nested := strings.Cut(key, "/")
	host = strings.ToLower(host)
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = "docker.io"
	}
	if nested {
		return host + "/" + path
	}
	return host
}

// within says whether a repository lies in what a key names.
func within(key, repository string) bool {
	return key != "" && (repository == key || strings.HasPrefix(repository, key+"/"))
}
