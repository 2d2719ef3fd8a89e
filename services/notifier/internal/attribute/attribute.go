// Package attribute makes CloudEvents attributes of a chart's annotations. An annotation becomes an attribute unchanged,
// or not at all, and then with a reason: nothing is truncated or rewritten.
package attribute

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

const (
	// MaxName is how long a name may be, in characters: longer ones are legal, and some receivers refuse them.
	MaxName = 20
	// MaxValue is how long a value may be, in bytes.
	MaxValue = 256
	// MaxTotal is how long all attributes of a chart may be together, names and values, in bytes.
	MaxTotal = 4 << 10
)

// Mapping is what became of a chart's annotations. Each of them is either in Names or in LeftOut.
type Mapping struct {
	// Attributes are the values by attribute name.
	Attributes map[string]string
	// Names are the attribute names by annotation key.
	Names map[string]string
	// LeftOut are the annotations without an attribute, in key order.
	LeftOut []*seatrialv1.LeftOut
}

// Map maps annotations in the order of their keys. What becomes of one depends on the others only where two keys have
// one name (then neither becomes an attribute) and where there is no room left.
func Map(annotations map[string]string, o Options) Mapping {
	m := Mapping{Attributes: map[string]string{}, Names: map[string]string{}}
	names := map[string]string{}   // by key
	keys := map[string][]string{}  // by name
	reasons := map[string]string{} // by key
	ordered := slices.Sorted(maps.Keys(annotations))
	for _, key := range ordered {
		name, reason := o.name(key)
		if reason != "" {
			reasons[key] = reason
			continue
		}
		names[key] = name
		keys[name] = append(keys[name], key)
	}
	total := 0
	for _, key := range ordered {
		name, named := names[key]
		value := trimNewline(annotations[key])
		size := len(name) + len(value)
		switch reason := CheckValue(value); {
		case !named:
		case len(keys[name]) > 1:
			reasons[key] = fmt.Sprintf("annotation %q has the same attribute name %s", other(keys[name], key), name)
		case reason != "":
			reasons[key] = reason
		case total+size > MaxTotal:
			reasons[key] = fmt.Sprintf("with it the attributes would have %d bytes, the limit is %d", total+size, MaxTotal)
		default:
			total += size
			m.Attributes[name] = value
			m.Names[key] = name
			continue
		}
		m.LeftOut = append(m.LeftOut, &seatrialv1.LeftOut{Annotation: key, Reason: reasons[key]})
	}
	return m
}

// name returns the attribute name of an annotation, or the reason why it has none.
func (o Options) name(key string) (name, reason string) {
	alias, aliased := o.Aliases[key]
	switch {
	case matches(o.Deny, key):
		return "", "it is on the operator's deny list"
	case aliased:
		return alias, ""
	case o.AliasesOnly:
		return "", "the operator takes aliases only, and it has none"
	case len(o.Allow) > 0 && !matches(o.Allow, key):
		return "", "it is not on the operator's allow list"
	}
	letters := lettersAndDigits(key)
	if len(o.Prefix)+len(letters) > MaxName {
		letters = lettersAndDigits(key[strings.LastIndexByte(key, '/')+1:])
	}
	if letters == "" {
		return "", "its key has no ASCII letter or digit to make a name of"
	}
	name = o.Prefix + letters
	return name, checkName(name)
}

// checkName returns why a name made of lower-case letters and digits cannot be that of an annotation's attribute.
func checkName(name string) (reason string) {
	switch {
	case len(name) > MaxName:
		return fmt.Sprintf("the name %s would have %d characters, the limit is %d", name, len(name), MaxName)
	case name[0] < 'a' || name[0] > 'z':
		return fmt.Sprintf("the name %s would not start with a letter", name)
	case isReserved(name):
		return fmt.Sprintf("the name %s is reserved", name)
	}
	return ""
}

// CheckValue returns why a value cannot be that of an attribute: it is no CloudEvents string, or too long. An empty
// value is refused because many receivers cannot tell it from an absent attribute.
func CheckValue(value string) (reason string) {
	switch {
	case value == "":
		return "the value is empty"
	case len(value) > MaxValue:
		return fmt.Sprintf("the value has %d bytes, the limit is %d", len(value), MaxValue)
	case !utf8.ValidString(value): // surrogates are no valid UTF-8 either
		return "the value is not valid UTF-8"
	}
	for _, r := range value {
		switch {
		case r <= 0x1F || r >= 0x7F && r <= 0x9F:
			return fmt.Sprintf("the value contains the control character %U", r)
		case r >= 0xFDD0 && r <= 0xFDEF || r&0xFFFE == 0xFFFE:
			return fmt.Sprintf("the value contains %U, which is not a character", r)
		}
	}
	return ""
}

// trimNewline takes away the one newline that a YAML block leaves at the end of a text.
func trimNewline(value string) string {
	if trimmed, ok := strings.CutSuffix(value, "\r\n"); ok {
		return trimmed
	}
	return strings.TrimSuffix(value, "\n")
}

// lettersAndDigits returns the ASCII letters of s in lower case, and its digits.
func lettersAndDigits(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return -1
		}
	}, s)
}

// other returns the first key that is not key.
func other(keys []string, key string) string {
	return keys[slices.IndexFunc(keys, func(k string) bool { return k != key })]
}
