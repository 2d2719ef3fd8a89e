package binding

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// percentEncode makes a header's value of an attribute's: a space, a double quote, a percent sign and all that is not
// printable ASCII are written as % and two upper-case hexadecimal digits for each byte of their UTF-8.
func percentEncode(value string) string {
	var out strings.Builder
	for _, b := range []byte(value) {
		if b > 0x20 && b < 0x7F && b != '"' && b != '%' {
			out.WriteByte(b)
		} else {
			fmt.Fprintf(&out, "%%%02X", b)
		}
	}
	return out.String()
}

// percentDecode is the reverse. It also takes a value in double quotes with backslash escapes, as older senders write
// it, what need not have been encoded, and lower-case digits. What is not UTF-8 then is an error.
func percentDecode(value string) (string, error) {
	value, err := unquote(strings.TrimSpace(value))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for {
		plain, rest, found := strings.Cut(value, "%")
		out.WriteString(plain)
		if !found {
			break
		}
		if len(rest) < 2 {
			return "", errors.New("% at the end without two hexadecimal digits")
		}
		decoded, err := hex.DecodeString(rest[:2])
		if err != nil {
			return "", fmt.Errorf("%q after %%: want two hexadecimal digits", rest[:2])
		}
		out.Write(decoded)
		value = rest[2:]
	}
	if !utf8.ValidString(out.String()) {
		return "", errors.New("it decodes to something that is not valid UTF-8")
	}
	return out.String(), nil
}

// unquote takes away double quotes around a value, and the backslashes of its escapes.
func unquote(value string) (string, error) {
	inner, quoted := strings.CutPrefix(value, `"`)
	if !quoted {
		return value, nil
	}
	var out strings.Builder
	for i := 0; i < len(inner); i++ {
		switch inner[i] {
		case '"':
			if i != len(inner)-1 {
				return "", errors.New("something stands behind the closing quote")
			}
			return out.String(), nil
		case '\\':
			i++
			if i == len(inner) {
				return "", errors.New("backslash at the end")
			}
		}
		out.WriteByte(inner[i])
	}
	return "", errors.New("the closing quote is missing")
}
