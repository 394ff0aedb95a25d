package node_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

// as are the headers of a caller with a password.
func as(login, password string) []string {
	var r http.Request
	r.Header = http.Header{}
	r.SetBasicAuth(login, password)
	return []string{"Authorization", r.Header.Get("Authorization")}
}

func admin(more ...string) []string { return append(as("admin", "changeit"), more...) }

// A node with this option on writes its metrics into a stream of its own.
func TestStatisticsStream(t *testing.T) {
	o := options(t.TempDir())
	o.Config.WriteStatsToDb, o.Config.StatsPeriod = true, 50*time.Millisecond
	n := open(t, o)
	stream := "/streams/%24stats-" + n.Addr()
	testkit.Eventually(t, time.Minute, func() error {
		status, body := call(t, n, "GET", stream+"/1", "", admin("Accept", "application/json")...)
		if status != 200 {
			return fmt.Errorf("status %d", status)
		}
		flat := map[string]any{}
		if err := json.Unmarshal([]byte(body), &flat); err != nil {
			return err
		}
		for _, key := range []string{"proc-id", "proc-gc-allocationSpeed", "sys-freeMem", "es-checksum", "es-queue-MainQueue-length"} {
			if flat[key] == nil {
				return fmt.Errorf("no %s in %s", key, body)
			}
		}
		return nil
	})
	status, body := call(t, n, "GET", stream+"/metadata", "", admin("Accept", "application/json")...)
	if status != 200 || !strings.Contains(body, `"$maxAge":864000`) {
		t.Errorf("metadata: %d %s", status, body)
	}
	if status, _ := call(t, n, "GET", stream, ""); status != 401 {
		t.Errorf("without credentials: %d", status)
	}
}
