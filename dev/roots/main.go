// Command roots writes the roots that TLS is checked against, those of Mozilla as Go's own module has them, as PEM: an
// image that has nothing else needs them, and from there they are the same on every machine that builds it.
package main

import (
	"encoding/pem"
	"fmt"
	"os"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // trusted under conditions that PEM cannot say
		}
		if err := pem.Encode(os.Stdout, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			fmt.Fprintln(os.Stderr, "roots:", err)
			os.Exit(1)
		}
	}
}
