// Package config is the one table of the server's options: their names, groups,
// defaults and descriptions, where their values come from (command line,
// environment, YAML file, defaults) and what must hold before a node may start.
//
// A row of the table binds a field of Config, so an option cannot exist without
// a place for its value, nor a field without an option (a test counts both).
// Help text, documentation, effective values, deprecation notices and the
// suggestions for misspelt names are all read from the same rows.
//
// One option has one name and four spellings:
//
//	ScavengeHistoryMaxAge                   the table, /info/options, YAML
//	--scavenge-history-max-age              command line
//	STORE_SCAVENGE_HISTORY_MAX_AGE          environment
//	EVENTSTORE_SCAVENGE_HISTORY_MAX_AGE     environment, weaker than STORE_
//	KURRENTDB_SCAVENGE_HISTORY_MAX_AGE      environment, weaker still
//
// Case and the separators - and _ never matter. The command line is stronger
// than the environment, that is stronger than the YAML file, and the defaults
// are the weakest.
package config
