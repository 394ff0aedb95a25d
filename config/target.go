package config

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Kind is the type of an option's values.
type Kind string

// The kinds of options.
const (
	KindString Kind = "string"
	KindInt    Kind = "int"
	KindNumber Kind = "number"
	KindBool   Kind = "bool"
	KindEnum   Kind = "enum"
	KindList   Kind = "list"
)

// target is where the text of an option's value goes: a field of Config, or
// nowhere for an option without effect.
type target struct {
	kind     Kind
	possible []string
	set      func(text string) error
	// get and field, a pointer to the bound field, are nil for an option without effect.
	get   func() string
	field any
}

// field binds a value by how its text is read and written.
func field[T any](p *T, kind Kind, read func(text string) (T, error), write func(T) string) target {
	return target{
		kind: kind,
		set: func(s string) error {
			v, err := read(s)
			if err == nil {
				*p = v
			}
			return err
		},
		get:   func() string { return write(*p) },
		field: p,
	}
}

func textField(p *string) target {
	return field(p, KindString, func(s string) (string, error) { return s, nil }, func(s string) string { return s })
}

func boolField(p *bool) target { return field(p, KindBool, parseBool, formatBool) }

func intField[T int | int64](p *T, least, most int64) target {
	return field(p, KindInt, func(s string) (T, error) {
		n, err := parseInt(s, least, most)
		return T(n), err
	}, func(n T) string { return strconv.FormatInt(int64(n), 10) })
}

// durationField binds a whole number of units.
func durationField(p *time.Duration, unit time.Duration, least int64) target {
	most := min(int64(math.MaxInt64/unit), math.MaxInt32)
	return field(p, KindInt, func(s string) (time.Duration, error) {
		n, err := parseInt(s, least, most)
		return time.Duration(n) * unit, err
	}, func(d time.Duration) string { return strconv.FormatInt(int64(d/unit), 10) })
}

func enumField[T ~string](p *T, values ...T) target {
	possible := make([]string, len(values))
	for i, v := range values {
		possible[i] = string(v)
	}
	t := field(p, KindEnum, func(s string) (T, error) {
		for _, v := range values {
			if strings.EqualFold(string(v), s) {
				return v, nil
			}
		}
		return "", fmt.Errorf("%q is none of %s%s", s, strings.Join(possible, ", "), meant(s, possible))
	}, func(v T) string { return string(v) })
	t.possible = possible
	return t
}

func addrField(p *netip.Addr) target {
	return field(p, KindString, func(s string) (netip.Addr, error) {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return a, fmt.Errorf("%q is not an IP address", s)
		}
		return a.Unmap(), nil
	}, netip.Addr.String)
}

// listField binds items that check accepts.
func listField(p *[]string, check func(item string) error) target {
	return field(p, KindList, func(s string) ([]string, error) {
		items, err := parseList(s)
		for _, item := range items {
			err = cmp.Or(err, check(item))
		}
		return items, err
	}, func(items []string) string { return strings.Join(items, ",") })
}

func endpointsField(p *[]string) target {
	return listField(p, func(item string) error {
		host, port, err := net.SplitHostPort(item)
		if err != nil || host == "" {
			return fmt.Errorf("%q is not of the form host:port", item)
		}
		if _, err := parseInt(port, 1, math.MaxUint16); err != nil {
			return fmt.Errorf("%q: the port %w", item, err)
		}
		return nil
	})
}

// hostsField binds names of hosts without ports.
func hostsField(p *[]string) target {
	return listField(p, func(item string) error {
		name := strings.TrimPrefix(item, "*.")
		if name == "" || strings.ContainsAny(name, ":/@ ") || name != "*" && strings.Contains(name, "*") {
			return fmt.Errorf("%q is not the name of a host, nor *. before one, nor *", item)
		}
		return nil
	})
}

// pageSizeField binds a page size in bytes. A number below 512 is in KiB, as some
// configurations have it.
func pageSizeField(p *int) target {
	return field(p, KindInt, func(s string) (int, error) {
		n, err := parseInt(s, 1, 65536)
		if n < 512 {
			n *= 1024
		}
		if err == nil && (n > 65536 || n&(n-1) != 0) {
			err = fmt.Errorf("%s is neither a power of two from 512 to 65536 nor one from 1 to 64 in KiB", strings.TrimSpace(s))
		}
		return int(n), err
	}, strconv.Itoa)
}

// ignored makes the target of an option without effect. It still checks values, to
// find mistakes.
func ignored(t target) target {
	t.get, t.field = nil, nil
	return t
}

func numberField(p *float64) target {
	return field(p, KindNumber, func(s string) (float64, error) {
		n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil {
			err = fmt.Errorf("%q is not a number", s)
		}
		return n, err
	}, func(n float64) string { return strconv.FormatFloat(n, 'g', -1, 64) })
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", s)
}

func formatBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func parseInt(s string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a whole number", s)
	case n < least || n > most:
		return 0, fmt.Errorf("%d is not between %d and %d", n, least, most)
	}
	return n, nil
}

// parseList splits at commas. Blanks around items and empty items fall away.
func parseList(s string) ([]string, error) {
	if i := strings.IndexAny(s, ";\t"); i >= 0 {
		return nil, fmt.Errorf("%q is not separated by commas", s)
	}
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items, nil
}
