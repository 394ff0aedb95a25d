package client_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/internal/testkit/onenode"
)

// address is that of a node that all tests share.
var address string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		a, stop, err := onenode.Start(context.Background(), onenode.Projections)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		address = a
		code := m.Run()
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}
