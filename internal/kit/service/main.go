package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

// Version of the program, set by the linker: -X github.com/seatrial/seatrial/internal/kit/service.Version=v1.2.3.
var Version = "unknown"

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// Main runs a program and returns its exit code: 0 when run returned nil, 1 for an error, 2 for wrong usage.
//
// flags adds the program's flags. A flag that is not on the command line is taken from the environment: SEATRIAL_ and
// its name in upper snake case; for nats-... also without SEATRIAL_, as the NATS tools have it. An empty variable counts
// as not set. --help and --version are there by themselves. The context of run ends at SIGINT or SIGTERM; a second
// signal kills the process.
func Main(name string, args []string, flags func(*flag.FlagSet), run func(ctx context.Context) error) (exitCode int) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	flags(fs)
	version := fs.Bool("version", false, "print the version and exit")
	check := false
	address := fs.Lookup("http-addr")
	if address != nil {
		fs.BoolVar(&check, "check", false, "ask the service that runs here at --http-addr whether it is ready: exit with 0 if it is, with 1 if not")
	}

	err := parse(fs, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		printHelp(os.Stdout, fs)
		return exitOK
	case err == nil && *version:
		_, _ = fmt.Fprintln(os.Stdout, name, Version, runtime.Version())
		return exitOK
	case err == nil && check:
		err = Ready(context.Background(), address.Value.String())
	case err == nil:
		err = untilSignal(run)
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, ErrUsage):
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\nSee %s --help.\n", name, err, name)
		return exitUsage
	default:
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return exitError
	}
}

// untilSignal calls run with a context that ends at the first SIGINT or SIGTERM.
func untilSignal(run func(ctx context.Context) error) error {
	signalled, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer restore()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	context.AfterFunc(signalled, func() {
		restore() // before anybody sees the end of ctx: from then on a second signal kills
		stop()
	})
	return run(ctx)
}

// parse sets the flags from args, and those that are not in args from the environment.
func parse(fs *flag.FlagSet, args []string) error {
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%w: unexpected argument %q", ErrUsage, fs.Arg(0))
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var errs []error
	fs.VisitAll(func(f *flag.Flag) {
		for _, variable := range variables(f.Name) {
			value := os.Getenv(variable)
			if given[f.Name] || value == "" {
				continue
			}
			if err := fs.Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%w: invalid value %q for %s: %w", ErrUsage, value, variable, err))
			}
			return
		}
	})
	return errors.Join(errs...)
}

// variables returns the environment variables of a flag; the first that is set counts. What is asked of one call has none.
func variables(flagName string) []string {
	if flagName == "version" || flagName == "check" {
		return nil
	}
	name := strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
	if strings.HasPrefix(name, "NATS_") {
		return []string{"SEATRIAL_" + name, name}
	}
	return []string{"SEATRIAL_" + name}
}

// printHelp lists the flags with their variables and defaults.
func printHelp(w io.Writer, fs *flag.FlagSet) {
	var out strings.Builder
	fmt.Fprintf(&out, "Usage: %s [flags]\n\nA flag that is not given is taken from its environment variable.\n", fs.Name())
	fs.VisitAll(func(f *flag.Flag) {
		kind, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(&out, "\n  %s\n      %s", strings.TrimSpace("--"+f.Name+" "+kind), usage)
		if f.DefValue != "" && f.DefValue != "false" {
			fmt.Fprintf(&out, " (default %s)", f.DefValue)
		}
		if names := variables(f.Name); len(names) > 0 {
			fmt.Fprintf(&out, "\n      $%s", strings.Join(names, " or $"))
		}
		out.WriteByte('\n')
	})
	_, _ = io.WriteString(w, out.String())
}
