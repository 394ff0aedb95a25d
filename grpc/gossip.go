package grpcapi

import (
	"context"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/gossip"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"

	"github.com/annalsdb/annals/event"
)

// gossipService tells clients of the nodes that they may connect to.
type gossipService struct {
	gossip.UnimplementedGossipServer
	s *Server
}

// states are those of nodes as the wire has them.
var states = map[event.NodeState]gossip.MemberInfo_VNodeState{
	event.StateInitializing:       gossip.MemberInfo_Initializing,
	event.StateDiscoverLeader:     gossip.MemberInfo_DiscoverLeader,
	event.StateUnknown:            gossip.MemberInfo_Unknown,
	event.StatePreReplica:         gossip.MemberInfo_PreReplica,
	event.StateCatchingUp:         gossip.MemberInfo_CatchingUp,
	event.StateClone:              gossip.MemberInfo_Clone,
	event.StateFollower:           gossip.MemberInfo_Follower,
	event.StatePreLeader:          gossip.MemberInfo_PreLeader,
	event.StateLeader:             gossip.MemberInfo_Leader,
	event.StateManager:            gossip.MemberInfo_Manager,
	event.StateShuttingDown:       gossip.MemberInfo_ShuttingDown,
	event.StateShutdown:           gossip.MemberInfo_Shutdown,
	event.StateReadOnlyLeaderless: gossip.MemberInfo_ReadOnlyLeaderless,
	event.StatePreReadOnlyReplica: gossip.MemberInfo_PreReadOnlyReplica,
	event.StateReadOnlyReplica:    gossip.MemberInfo_ReadOnlyReplica,
	event.StateResigningLeader:    gossip.MemberInfo_ResigningLeader,
}

// Read answers with the cluster as this node sees it.
func (g *gossipService) Read(_ context.Context, _ *shared.Empty) (*gossip.ClusterInfo, error) {
	view := g.s.opts.Membership.View()
	answer := &gossip.ClusterInfo{Members: make([]*gossip.MemberInfo, len(view.Members))}
	for i := range view.Members {
		m := &view.Members[i]
		answer.Members[i] = &gossip.MemberInfo{
			InstanceId: uuidOf(m.Node, false), TimeStamp: ticksOf(m.Time.UnixNano()), State: states[m.State], IsAlive: m.Alive,
			HttpEndPoint: &gossip.EndPoint{Address: m.HTTPHost, Port: uint32(m.HTTPPort)},
		}
	}
	return answer, nil
}
