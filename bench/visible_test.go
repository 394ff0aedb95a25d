package bench_test

import (
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func TestVisible(t *testing.T) {
	node := startNode(t)
	follower := &front{hide: 5}
	base := node + "," + follower.before(t, node)
	doc := measure(t, base, "visible", "--count", "20", "--duration", "5m", "--warmup", "0", "--pause", "0")
	if doc.Operations != 20 || doc.ErrorTotal != 0 || len(doc.Parts) != 0 || doc.LatencyMs.P50 <= 0 {
		t.Errorf("%+v", doc)
	}
	check.Equal(t, len(follower.asked), 20, "the follower was asked for ... events")
	for path, times := range follower.asked {
		if times <= 5 {
			t.Errorf("%s was asked for %d times only", path, times)
		}
	}

	doc = measure(t, base, "visible", "--count", "60", "--duration", "5m", "--warmup", "0", "--pause", "0", "--workers", "2")
	if len(doc.Parts) != 1 || doc.Parts[0].Name != "append" || doc.Operations+doc.Parts[0].Operations != 60 || doc.Events != doc.Operations {
		t.Errorf("%+v", doc)
	}
}

func TestNeverVisible(t *testing.T) {
	t.Parallel()
	node := startNode(t)
	behind := (&front{hide: 1 << 30}).before(t, node)
	_, _, err := execute(t, t.Context(), "visible", "--node", node+","+behind, "--count", "1", "--warmup", "0", "--timeout", "3s", "--quiet")
	check.Says(t, err, "acknowledged, but not visible at "+strings.TrimPrefix(behind, "http://"))
}
