package config_test

import (
	"strings"
	"testing"

	"github.com/annalsdb/annals/config"
)

// TestNothingIsPassedOver: an option that this version does not act on, and that
// an operator would rely on, ends the start instead of being ignored.
func TestNothingIsPassedOver(t *testing.T) {
	for _, argument := range []string{
		"--unsafe-disable-flush-to-disk",
	} {
		t.Run(argument, func(t *testing.T) {
			_, err := config.Load([]string{argument}, nil, func(string) ([]byte, error) { return nil, nil })
			if err == nil || !strings.Contains(err.Error(), "in this version") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
		})
	}
}
