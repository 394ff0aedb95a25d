package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// envPrefixes are what the variables with options begin with, and the source that each counts as.
// The environments of EventStoreDB and of KurrentDB may stay as they are.
var envPrefixes = []struct {
	prefix string
	source source
}{
	{EnvPrefix, sourceEnvironment},
	{"EVENTSTORE_", sourceEventStoreEnvironment},
	{"KURRENTDB_", sourceKurrentEnvironment},
}

// LookupEnv returns the value of an option's variable, that of the strongest prefix. It is for
// commands that read single options by themselves. The name is in the form CLUSTER_SIZE.
func LookupEnv(name string, lookup func(variable string) (string, bool)) (string, bool) {
	for _, p := range envPrefixes {
		if value, ok := lookup(p.prefix + name); ok {
			return value, true
		}
	}
	return "", false
}

// parseEnviron picks the variables with one of our prefixes, in any case. A
// variable without text counts as not set. An empty password is an exception: apply
// refuses it. One warning names the variables with the prefix of another product,
// another one the variables that are not options at all.
func (l *loader) parseEnviron(environ []string) []setting {
	var found []setting
	var others, services []string
	for _, entry := range environ {
		variable, value, _ := strings.Cut(entry, "=")
		s, ok := parseVariable(variable, value)
		switch {
		case !ok:
			continue
		case ofService(s.name, value):
			services = append(services, variable)
			continue
		case s.source != sourceEnvironment && l.lookup(s.name) != nil:
			others = append(others, variable)
		}
		found = append(found, s)
	}
	if len(others) > 0 {
		slices.Sort(others)
		l.warnOnce(fmt.Sprintf("options were read from variables with the prefix of another product: %s; %s is the prefix of this one, and the stronger one",
			strings.Join(others, ", "), EnvPrefix))
	}
	if len(services) > 0 {
		slices.Sort(services)
		l.warnOnce(fmt.Sprintf("variables that Kubernetes makes for a service were ignored: %s (enableServiceLinks: false leaves them out)",
			strings.Join(services, ", ")))
	}
	return found
}

// parseVariable returns the setting of a variable that has one of our prefixes. A variable without
// text counts only for passwords.
func parseVariable(variable, value string) (s setting, ok bool) {
	upper := strings.ToUpper(variable)
	for _, p := range envPrefixes {
		if !strings.HasPrefix(upper, p.prefix) {
			continue
		}
		s = setting{name: variable[len(p.prefix):], value: value, source: p.source, at: variable}
		return s, fold(s.name) != "" && (value != "" || strings.HasSuffix(fold(s.name), "password"))
	}
	return setting{}, false
}

// The names of the variables that Kubernetes makes in every pod of a namespace for each service
// there, without the prefix that a service called store, or store-something, gives them.
var (
	serviceHost = regexp.MustCompile(`^(.*_)?SERVICE_HOST$|^(.*_)?PORT_\d+_(TCP|UDP|SCTP)_ADDR$`)
	servicePort = regexp.MustCompile(`^(.*_)?SERVICE_PORT(_.*)?$|^(.*_)?PORT_\d+_(TCP|UDP|SCTP)_PORT$`)
	serviceURL  = regexp.MustCompile(`^(.*_)?PORT(_\d+_(TCP|UDP|SCTP))?$`)
	serviceKind = regexp.MustCompile(`^(.*_)?PORT_\d+_(TCP|UDP|SCTP)_PROTO$`)
	urlOfPort   = regexp.MustCompile(`^(tcp|udp|sctp)://.+:\d+$`)
	kindOfPort  = regexp.MustCompile(`^(tcp|udp|sctp)$`)
)

// ofService says whether a variable is one of those. Name and value must both fit: a mistake
// in an option's name, or in its value, is still found.
func ofService(name, value string) bool {
	switch {
	case serviceHost.MatchString(name):
		_, err := netip.ParseAddr(value)
		return err == nil
	case servicePort.MatchString(name):
		_, err := strconv.ParseUint(value, 10, 16)
		return err == nil
	case serviceURL.MatchString(name):
		return urlOfPort.MatchString(value)
	case serviceKind.MatchString(name):
		return kindOfPort.MatchString(value)
	}
	return false
}
