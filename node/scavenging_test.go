package node_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/node"
)

// TestScavengeCanBeReadOnceItIsAnswered: a client that starts a scavenge, on any node, finds that
// it has begun in its stream and among all scavenges.
func TestScavengeCanBeReadOnceItIsAnswered(t *testing.T) {
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprint(size, " nodes"), func(t *testing.T) {
			nodes := openCluster(t, size, func(int, *node.Options) {})
			for round := range 5 {
				for i, n := range nodes {
					var begun struct{ ScavengeID string }
					status, body := call(t, n, "POST", "/admin/scavenge", "", "Accept", "application/json")
					check.MustEqual(t, status, 200, body)
					check.Must(t, json.Unmarshal([]byte(body), &begun), body)
					stream := "$scavenges-" + begun.ScavengeID
					if status, body := call(t, n, "GET", "/streams/"+stream+"/0", "", "Accept", "application/json"); status != 200 {
						t.Errorf("round %d, node %d: the stream of the run: %d %s", round, i, status, body)
					}
					if status, body := call(t, n, "GET", "/streams/$scavenges?embed=body", "", "Accept", "application/json"); status != 200 || !strings.Contains(body, stream) {
						t.Errorf("round %d, node %d: all runs lack it: %d", round, i, status)
					}
					testkit.Eventually(t, 3*time.Minute, func() error {
						if _, body := call(t, n, "GET", "/admin/scavenge/current", "", "Accept", "application/json"); !strings.Contains(body, `"scavengeId": ""`) {
							return fmt.Errorf("%s", body)
						}
						return nil
					})
				}
			}
		})
	}
}
