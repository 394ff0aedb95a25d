// Package onenode runs a node within a test, for examples and tests that want a real one at no
// cost.
package onenode

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/node"
)

// Projections makes a node run all projections.
func Projections(c *config.Config) { c.RunProjections = config.ProjectionsAll }

// Start starts a node that keeps everything in memory, with the users admin and ops, and returns
// its address. Its configuration may be changed before.
func Start(ctx context.Context, set ...func(*config.Config)) (address string, stop func() error, err error) {
	return StartLogged(ctx, nil, set...)
}

// StartLogged is Start for a node whose log a test reads.
func StartLogged(ctx context.Context, log hclog.Logger, set ...func(*config.Config)) (address string, stop func() error, err error) {
	c := config.Default()
	c.MemDb, c.NodePort = true, 0
	for _, change := range set {
		change(c)
	}
	n, err := node.Open(ctx, node.Options{Config: c, PasswordIterations: 10, Logger: log})
	if err != nil {
		return "", nil, err
	}
	return "http://" + n.Addr(), n.Close, nil
}
