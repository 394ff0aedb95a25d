//go:build sabotage

package sabotage

import "os"

// On reports whether a promise is to be broken: the environment variable ANNALS_SABOTAGE names it.
func On(promise string) bool { return os.Getenv("ANNALS_SABOTAGE") == promise }
