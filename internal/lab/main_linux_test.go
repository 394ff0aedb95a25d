package lab_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or is the program that a test has started.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

// roleVariable says what this binary is when a test has started it.
const roleVariable = "LAB_TEST_ROLE"
