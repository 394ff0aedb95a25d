//go:build invariants

package main

import "os"

// passwordIterations makes logins cheap for tests, which start hundreds of nodes. A test of what
// guesses cost asks for the real price.
var passwordIterations = func() int {
	if os.Getenv("ANNALS_TEST_PASSWORD_COST") == "real" {
		return 0
	}
	return 1000
}()
