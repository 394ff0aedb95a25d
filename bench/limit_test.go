package bench_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/check"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestLimit(t *testing.T) {
	base := startNode(t)
	c, err := client.New(client.Options{Nodes: []string{base}, Login: url.UserPassword("admin", "changeit")})
	check.Must(t, err)
	defer c.Close()
	measure(t, base, strings.Fields("fill --events 1005 --streams 100")...)
	for range 2 { // The second time streams are there that an earlier run deleted.
		doc := measure(t, base, slices.Concat(strings.Fields("limit --events 1005 --streams 100 --limited-streams 50 --deleted 4 --workers 3"), asAdmin)...)
		check.MustEqual(t, doc.Operations, 50, doc)
		check.Equal(t, doc.ErrorTotal, 0, doc)
	}
	for i := 1; i <= 100; i++ {
		path := fmt.Sprintf("/streams/bench-%06d", i)
		want := http.StatusOK
		switch i {
		case 1, 3:
			want = http.StatusNotFound
		case 2, 4: // for good
			want = http.StatusGone
		}
		if a, err := c.Do(t.Context(), client.Request{Path: path, Header: map[string]string{"Accept": client.MediaAtom}}); err != nil || a.Status != want {
			t.Errorf("%s: %v, %v, want %d", path, a, err, want)
		}
		if i <= 4 {
			continue
		}
		a, err := c.Do(t.Context(), client.Request{Path: path + "/metadata", Header: map[string]string{"Accept": client.MediaJSON}})
		if limited := strings.Contains(string(a.Body), `"$maxCount"`); err != nil || limited != (i <= 50) {
			t.Errorf("%s: metadata %s, %v", path, a.Body, err)
		}
	}
}

func TestLimitRefuses(t *testing.T) {
	for name, args := range map[string]string{
		"few events":   "--events 5 --streams 6",
		"many limited": "--limited-streams 100001",
		"all deleted":  "--deleted 100",
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"limit"}, strings.Fields(args)...)
			if _, _, err := execute(t, context.Background(), args...); err == nil || !strings.HasPrefix(err.Error(), "--") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLimitHelp(t *testing.T) {
	stdout, stderr, err := execute(t, context.Background(), "limit", "--help")
	check.Must(t, err)
	check.MustEqual(t, stderr, "")
	got := "$ annals bench limit --help\n" + stdout + "\n"
	file := filepath.Join("testdata", "limit_help.golden")
	if *update {
		check.Must(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	check.Must(t, err)
	check.Equal(t, got, string(want), file, "differs (rewrite it with -update and review the diff)")
}
