package config

import (
	"fmt"
	"strconv"
	"strings"
)

// parseArgs reads a command line:
//
//	--name=value   --name value   --flag   --flag+   --flag-
//
// each also with a single dash. Only a flag needs no value, and an unknown option
// that another option follows.
func (l *loader) parseArgs(args []string) []setting {
	var found []setting
	add := func(name, value string) {
		found = append(found, setting{name: name, value: value, source: sourceCommandLine, at: sourceCommandLine.String()})
	}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		body := strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
		name, value, hasValue := strings.Cut(body, "=")
		switch {
		case body == arg || fold(name) == "":
			l.problem(fmt.Errorf("unexpected argument %q", arg))
			continue
		case hasValue:
			add(name, value)
			continue
		case arg == "-h" || arg == "-?":
			add("Help", "true")
			continue
		}
		if flag, value, ok := l.signedFlag(name); ok {
			add(flag, value)
			continue
		}
		next, more := "", i+1 < len(args)
		if more {
			next = args[i+1]
		}
		o := l.lookup(name)
		switch {
		case o != nil && o.target.kind == KindBool:
			// A flag takes the next argument only if that is true or false. Any other
			// argument is a mistake that must be reported.
			if _, err := parseBool(next); more && err == nil {
				add(name, next)
				i++
			} else {
				add(name, "true")
			}
		case more && isValue(next):
			add(name, next)
			i++
		case o == nil:
			add(name, "true")
		default:
			l.problem(fmt.Errorf("option %s (%s) needs a value", name, sourceCommandLine))
		}
	}
	return found
}

// signedFlag recognises a flag with a trailing + or -. It looks at known flags
// only, because other names may contain dashes.
func (l *loader) signedFlag(name string) (flag, value string, ok bool) {
	flag, value, ok = strings.TrimSuffix(name, "+"), "true", strings.HasSuffix(name, "+")
	if !ok {
		flag, value, ok = strings.TrimSuffix(name, "-"), "false", strings.HasSuffix(name, "-")
	}
	if !ok {
		return "", "", false
	}
	o := l.lookup(flag)
	return flag, value, o != nil && o.target.kind == KindBool
}

// isValue tells a value from the next option. A negative number is a value.
func isValue(arg string) bool {
	if !strings.HasPrefix(arg, "-") {
		return true
	}
	_, err := strconv.ParseFloat(arg, 64)
	return err == nil
}
