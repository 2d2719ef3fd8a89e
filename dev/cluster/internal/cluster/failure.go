package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/seatrial/seatrial/dev/cluster/internal/node"
)

// tailSize is how much of a log is shown.
const tailSize = 4 << 10

// explain adds the end of the program's log to what failed.
func explain(state string, failure *node.ProgramError) error {
	if failure.Program == "" {
		return failure
	}
	path := node.Log(state, failure.Program)
	end, err := tail(path)
	if err != nil {
		return errors.Join(failure, fmt.Errorf("read its log: %w", err))
	}
	return fmt.Errorf("%w\n--- the end of %s:\n%s---", failure, path, end)
}

// tail reads the last whole lines of a file.
func tail(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(-tailSize, io.SeekEnd); err != nil {
		return io.ReadAll(file) // it is shorter than that
	}
	end, err := io.ReadAll(file)
	if _, whole, found := bytes.Cut(end, []byte("\n")); found {
		end = whole
	}
	return end, err
}
