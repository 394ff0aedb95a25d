package node

import (
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/http/admin"
	"github.com/annalsdb/annals/node/serve"
)

// newRPC returns the gRPC interface.
func newRPC(n *Node) (*grpcapi.Server, error) {
	c, part := n.config, n.part()
	options := grpcapi.Options{
		Store: n.store, Cluster: part, Access: gate{n.users.logins, n.policy}, Leases: n.leases, Membership: part,
		Logger: n.logger.Named("grpc"), Stats: n.opts.Stats, Version: admin.CompatibleRelease,
		WriteTimeout: c.PrepareTimeout + c.CommitTimeout, MaxAppendBytes: c.AppendLimit(),
		GossipIsOpen: c.OverrideAnonymousEndpointAccessForGossip || c.AllowAnonymousEndpointAccess, StatsAreOpen: c.AllowAnonymousEndpointAccess,
		Users: n.users.manager, Operations: operations{n}, Scavenges: n.scavenge.runs,
		Statistics: n.metrics, StatsPeriod: c.StatsPeriod, Activity: n.activity,
		Insecure: c.Insecure, LogCalls: c.LogHttpRequests, RefusedLogins: n.users.refused,
		IdleTimeout: serve.IdleTimeout, PingAfter: c.KeepAliveInterval, PingTimeout: c.KeepAliveTimeout, MaxHeaderBytes: serve.MaxHeaderBytes,
		Subscriptions: n.groups, Shares: n.shares, Memory: n.memory,
	}
	if n.queries != nil {
		options.Projections = n.queries
	}
	if err := options.Validate(); err != nil {
		return nil, err
	}
	return grpcapi.New(options), nil
}
