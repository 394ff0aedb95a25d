// Package config is the one table of the server's options: their names, groups,
// defaults and descriptions, the sources of their values (command line,
// environment, YAML file, defaults) and the checks before a node may start.
//
// A row of the table binds a field of Config, so that each option has a place for
// its value, and each field has an option (a test counts both). Help text,
// documentation, effective values, deprecation notices and the suggestions for
// misspelt names all come from the same rows.
//
// One option has one name and four spellings:
//
//	ScavengeHistoryMaxAge                   the table, /info/options, YAML
//	--scavenge-history-max-age              command line
//	STORE_SCAVENGE_HISTORY_MAX_AGE          environment
//	EVENTSTORE_SCAVENGE_HISTORY_MAX_AGE     environment, weaker than STORE_
//	KURRENTDB_SCAVENGE_HISTORY_MAX_AGE      environment, weaker still
//
// Case and the separators - and _ never matter. The command line overrides the
// environment, the environment overrides the YAML file, and the file overrides the
// defaults.
package config
