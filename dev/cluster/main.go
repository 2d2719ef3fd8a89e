// Seatrial-cluster runs a real Kubernetes, control plane and node, on this machine and in namespaces of its own.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/seatrial/seatrial/dev/cluster/internal/component"
	"github.com/seatrial/seatrial/dev/cluster/internal/node"
)

func main() {
	os.Exit(run(os.Args))
}

// run plays the part that the name of the program asks for, args[0], and returns the exit code.
func run(args []string) int {
	if filepath.Base(args[0]) == node.Program {
		return node.Main(os.Stdin, os.Stdout)
	}
	if code, ok := component.Main(args); ok {
		return code
	}
	pflag.CommandLine = pflag.NewFlagSet(args[0], pflag.ContinueOnError) // Kubernetes' libraries put flags into it
	command := rootCommand()
	command.SetArgs(args[1:])
	err := command.Execute()
	var code exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(os.Stderr, "seatrial-cluster:", err)
	return 1
}
