package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/seatrial/seatrial/dev/cluster/internal/debian"
)

// DebianPackages are those that WriteDebian wants to find.
var DebianPackages = []string{"curl", "nginx-light"}

// curlScript is the entry point of the public image: arguments alone are curl's, else they are a command.
const curlScript = `#!` + busyboxPath + ` sh
case "$1" in
-* | *://*) exec curl "$@" ;;
*) exec "$@" ;;
esac
`

// The configuration of nginx: what the public image has where charts put something else.
const (
	nginxConf = `worker_processes 1;
user nobody nogroup;
pid /tmp/nginx.pid;
error_log /dev/stderr notice;
events {}
http {
	include /etc/nginx/mime.types;
	default_type application/octet-stream;
	access_log /dev/stdout;
	client_body_temp_path /tmp/client_body;
	proxy_temp_path /tmp/proxy;
	fastcgi_temp_path /tmp/fastcgi;
	uwsgi_temp_path /tmp/uwsgi;
	scgi_temp_path /tmp/scgi;
	include /etc/nginx/conf.d/*.conf;
}
`
	nginxSite = `server {
	listen 80;
	root /usr/share/nginx/html;
}
`
	nginxPage = "<!DOCTYPE html>\n<title>Welcome to nginx!</title>\n<h1>Welcome to nginx!</h1>\n"
)

// WriteDebian writes an archive of the images made of Debian's packages, which are unpacked in root, on top of busybox.
func WriteDebian(w io.Writer, busybox []byte, applets []string, root string) error {
	base, err := busyboxLayer(busybox, applets)
	if err != nil {
		return fmt.Errorf("pack the busybox layer: %w", err)
	}
	curl, err := programLayer(root, "/usr/bin/curl", func(files *archive) {
		files.file("entrypoint.sh", 0o755, []byte(curlScript))
	})
	if err != nil {
		return fmt.Errorf("pack curl: %w", err)
	}
	types, err := os.ReadFile(root + "/etc/nginx/mime.types")
	if err != nil {
		return fmt.Errorf("read the types of nginx: %w", err)
	}
	nginx, err := programLayer(root, "/usr/sbin/nginx", func(files *archive) {
		files.file("etc/nginx/nginx.conf", 0o644, []byte(nginxConf))
		files.file("etc/nginx/mime.types", 0o644, types)
		files.file("etc/nginx/conf.d/default.conf", 0o644, []byte(nginxSite))
		files.file("usr/share/nginx/html/index.html", 0o644, []byte(nginxPage))
		files.folder("var/log/nginx", 0o777) // where it looks before it reads its configuration
	})
	if err != nil {
		return fmt.Errorf("pack nginx: %w", err)
	}
	return writeArchive(w, []image{
		{name: Curl, layers: [][]byte{base, curl}, entrypoint: []string{"/entrypoint.sh"}, command: []string{"curl"}},
		{name: Nginx, layers: [][]byte{base, nginx}, command: []string{"nginx", "-g", "daemon off;"}},
	})
}

// programLayer has a program of root, what it needs, and more.
func programLayer(root, program string, more func(*archive)) ([]byte, error) {
	needs, err := debian.Needs(root, program)
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	files := archive{w: tar.NewWriter(&layer)}
	for _, path := range slices.Sorted(maps.Keys(needs)) {
		content, err := os.ReadFile(needs[path])
		if err != nil {
			return nil, err
		}
		files.file(strings.TrimPrefix(path, "/"), 0o755, content)
	}
	more(&files)
	err = files.close()
	return layer.Bytes(), err
}
