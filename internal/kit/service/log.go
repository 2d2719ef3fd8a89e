package service

import (
	"fmt"
	"io"
	"log/slog"
)

// LogFormat is how log lines are written.
type LogFormat string

// Formats of log lines.
const (
	LogJSON LogFormat = "json"
	LogText LogFormat = "text"
)

// MarshalText returns the format's name.
func (f LogFormat) MarshalText() ([]byte, error) { return []byte(f), nil }

// UnmarshalText takes the name of a format.
func (f *LogFormat) UnmarshalText(text []byte) error {
	switch name := LogFormat(text); name {
	case LogJSON, LogText:
		*f = name
		return nil
	default:
		return fmt.Errorf("want %s or %s", LogJSON, LogText)
	}
}

// NewLogger returns a logger that writes to w by the configuration, and names service and instance in every line.
func NewLogger(cfg Config, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.LogLevel}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	if cfg.LogFormat == LogText {
		handler = slog.NewTextHandler(w, options)
	}
	return slog.New(handler).With("service", cfg.Name, "instance", cfg.Instance)
}
