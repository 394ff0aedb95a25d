package replication

import (
	"errors"
	"io"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
)

// Whoever asks for a change of the cluster hears whether to ask again.
func TestChangeFailed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ of, want error }{
		{raft.ErrNotLeader, event.ErrNotReady},
		{raft.ErrLeadershipTransferInProgress, event.ErrNotReady},
		{raft.ErrEnqueueTimeout, event.ErrNotReady},
		{raft.ErrLeadershipLost, event.ErrOutcomeUnknown},
		{raft.ErrRaftShutdown, event.ErrOutcomeUnknown},
		{io.ErrUnexpectedEOF, io.ErrUnexpectedEOF},
	} {
		err := changeFailed(c.of)
		if !errors.Is(err, c.want) || !errors.Is(err, c.of) {
			t.Errorf("%v became %v, want %v", c.of, err, c.want)
		}
		if c.want == c.of && errors.Is(err, event.ErrNotReady) {
			t.Errorf("%v became %v", c.of, err)
		}
	}
}
