package config

import (
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

func textField(p *string) target {
	return target{
		kind:  KindString,
		set:   func(s string) error { *p = s; return nil },
		get:   func() string { return *p },
		field: p,
	}
}

func boolField(p *bool) target {
	return target{
		kind:  KindBool,
		set:   func(s string) (err error) { *p, err = parseBool(s); return err },
		get:   func() string { return formatBool(*p) },
		field: p,
	}
}

func intField[T int | int64](p *T, least, most int64) target {
	return target{
		kind: KindInt,
		set: func(s string) error {
			n, err := parseInt(s, least, most)
			if err == nil {
				*p = T(n)
			}
			return err
		},
		get:   func() string { return strconv.FormatInt(int64(*p), 10) },
		field: p,
	}
}

// durationField binds a whole number of units.
func durationField(p *time.Duration, unit time.Duration, least int64) target {
	most := min(int64(math.MaxInt64/unit), math.MaxInt32)
	return target{
		kind: KindInt,
		set: func(s string) error {
			n, err := parseInt(s, least, most)
			if err == nil {
				*p = time.Duration(n) * unit
			}
			return err
		},
		get:   func() string { return strconv.FormatInt(int64(*p/unit), 10) },
		field: p,
	}
}

func enumField[T ~string](p *T, values ...T) target {
	possible := make([]string, len(values))
	for i, v := range values {
		possible[i] = string(v)
	}
	return target{
		kind:     KindEnum,
		possible: possible,
		set: func(s string) error {
			for _, v := range values {
				if strings.EqualFold(string(v), s) {
					*p = v
					return nil
				}
			}
			return fmt.Errorf("%q is none of %s%s", s, strings.Join(possible, ", "), meant(s, possible))
		},
		get:   func() string { return string(*p) },
		field: p,
	}
}

func addrField(p *netip.Addr) target {
	return target{
		kind: KindString,
		set: func(s string) error {
			a, err := netip.ParseAddr(s)
			if err != nil {
				return fmt.Errorf("%q is not an IP address", s)
			}
			*p = a.Unmap()
			return nil
		},
		get:   func() string { return p.String() },
		field: p,
	}
}

func endpointsField(p *[]string) target {
	return target{
		kind: KindList,
		set: func(s string) error {
			items, err := parseList(s)
			if err != nil {
				return err
			}
			for _, item := range items {
				host, port, err := net.SplitHostPort(item)
				if err != nil || host == "" {
					return fmt.Errorf("%q is not of the form host:port", item)
				}
				if _, err := parseInt(port, 1, math.MaxUint16); err != nil {
					return fmt.Errorf("%q: the port %w", item, err)
				}
			}
			*p = items
			return nil
		},
		get:   func() string { return strings.Join(*p, ",") },
		field: p,
	}
}

// hostsField binds names of hosts without ports.
func hostsField(p *[]string) target {
	return target{
		kind: KindList,
		set: func(s string) error {
			items, err := parseList(s)
			if err != nil {
				return err
			}
			for _, item := range items {
				name := strings.TrimPrefix(item, "*.")
				if name == "" || strings.ContainsAny(name, ":/@ ") || name != "*" && strings.Contains(name, "*") {
					return fmt.Errorf("%q is not the name of a host, nor *. before one, nor *", item)
				}
			}
			*p = items
			return nil
		},
		get:   func() string { return strings.Join(*p, ",") },
		field: p,
	}
}

// pageSizeField binds a page size in bytes. A number below 512 is in KiB, as some
// configurations have it.
func pageSizeField(p *int) target {
	return target{
		kind: KindInt,
		set: func(s string) error {
			n, err := parseInt(s, 1, 65536)
			if err != nil {
				return err
			}
			if n < 512 {
				n *= 1024
			}
			if n > 65536 || n&(n-1) != 0 {
				return fmt.Errorf("%s is neither a power of two from 512 to 65536 nor one from 1 to 64 in KiB", strings.TrimSpace(s))
			}
			*p = int(n)
			return nil
		},
		get:   func() string { return strconv.Itoa(*p) },
		field: p,
	}
}

// ignored makes the target of an option without effect. It still checks values, to
// find mistakes.
func ignored(t target) target {
	t.get, t.field = nil, nil
	return t
}

func numberField(p *float64) target {
	return target{kind: KindNumber, set: func(s string) (err error) {
		if *p, err = strconv.ParseFloat(strings.TrimSpace(s), 64); err != nil {
			return fmt.Errorf("%q is not a number", s)
		}
		return nil
	}}
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
