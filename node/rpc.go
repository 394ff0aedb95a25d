package node

import (
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/http/admin"
	"github.com/annalsdb/annals/node/serve"
)

// newRPC returns the gRPC interface.
func newRPC(n *Node) (*grpcapi.Server, error) {
	c := n.config
	options := grpcapi.Options{
		Node: n.served(), Stats: n.opts.Stats, Version: admin.CompatibleRelease, StatsPeriod: c.StatsPeriod,
		IdleTimeout: serve.IdleTimeout, PingAfter: c.KeepAliveInterval, PingTimeout: c.KeepAliveTimeout, MaxHeaderBytes: serve.MaxHeaderBytes,
	}
	options.Logger = n.logger.Named("grpc")
	if err := options.Validate(); err != nil {
		return nil, err
	}
	return grpcapi.New(options), nil
}
