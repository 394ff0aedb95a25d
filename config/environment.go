package config

import "strings"

// parseEnviron picks the variables with one of our prefixes, in any case. A
// variable without text counts as not set, except that nobody should believe
// to have chosen a password with it: apply refuses that.
func parseEnviron(environ []string) []setting {
	var found []setting
	for _, entry := range environ {
		variable, value, _ := strings.Cut(entry, "=")
		upper := strings.ToUpper(variable)
		var s setting
		switch {
		case strings.HasPrefix(upper, envPrefix):
			s = setting{name: variable[len(envPrefix):], source: sourceEnvironment}
		case strings.HasPrefix(upper, envPrefixReference):
			s = setting{name: variable[len(envPrefixReference):], source: sourceReferenceEnvironment}
		default:
			continue
		}
		if fold(s.name) == "" || value == "" && !strings.HasSuffix(fold(s.name), "password") {
			continue
		}
		s.value = value
		found = append(found, s)
	}
	return found
}
