package app

import (
	"fmt"
	"strconv"
	"strings"
)

// List is a flag of words that are separated by commas.
type List []string

// String returns the flag's text.
func (l *List) String() string { return strings.Join(*l, ",") }

// Set takes the flag's text. It replaces the words that were there.
func (l *List) Set(text string) error {
	*l = nil
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			*l = append(*l, word)
		}
	}
	return nil
}

// count is a flag of a number.
type count int32

// String returns the flag's text.
func (c *count) String() string { return strconv.Itoa(int(*c)) }

// Set takes the flag's text.
func (c *count) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return fmt.Errorf("%q is no number", text)
	}
	*c = count(n)
	return nil
}

// always is a flag that is either always or never.
type always bool

// String returns the flag's text.
func (a *always) String() string {
	if *a {
		return "always"
	}
	return "never"
}

// Set takes the flag's text.
func (a *always) Set(text string) error {
	if text != "always" && text != "never" {
		return fmt.Errorf("%q is neither never nor always", text)
	}
	*a = text == "always"
	return nil
}
