package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/lab"
	"github.com/annalsdb/annals/internal/testkit"
)

// writersAlone are the flags of a round in which clients write and read, and nothing else happens.
const writersAlone = " --consumers 0 --projections=false --scavenges=false --backups=false --redactions=false --rate 400"

// TestTorture kills nodes of a cluster under load. What torture proves of its rounds is on the page
// testing. Its own tests torment a single node.
func TestTorture(t *testing.T) {
	t.Parallel()
	torment(t, "kill", "--seconds 6"+writersAlone)
}

// TestLongTorture breaks clusters in all the ways that torture has.
func TestLongTorture(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, faults, flags string }{
		{"isolated leader", "isolate-leader", "--seconds 6" + writersAlone},
		{"long pause", "pause-long", "--seconds 6" + writersAlone},
		{"one way", "one-way", "--seconds 8" + writersAlone},
		{"lost leaders", "kill,isolate-leader,resign,terminate,rolling", "--seconds 20 --backups=false --redactions=false"},
		{"wiped", "wipe,wipe-raft", "--seconds 16 --backups=false --redactions=false --projections=false --consumers 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			torment(t, c.faults, c.flags)
		})
	}
}

// TestLongTortureOfFive has all faults. Elections are judged there: it has the machine for itself.
func TestLongTortureOfFive(t *testing.T) {
	torment(t, "", "--nodes 5 --seconds 30 --disk-faults")
}

// torment runs a round, and demands that no promise was broken. A fault must have struck; one that
// is named alone, that one.
func torment(t *testing.T, faults, flags string) {
	t.Helper()
	l, err := lab.New(lab.Options{Hosts: 1})
	if err != nil {
		t.Skip(err)
	}
	links := l.NoLinks()
	check.Must(t, l.Close())
	if links != nil && (faults == "isolate-leader" || faults == "one-way") {
		t.Skip(links)
	}
	args := append([]string{"torture", "--seed", fmt.Sprint(seed(t)), "--heal", settleLimit.String(), "--keep", t.TempDir()}, strings.Fields(flags)...)
	if faults != "" {
		args = append(args, "--faults", faults)
	}
	p, code := testkit.Run(t, testkit.Command{Args: args})
	if code != 0 {
		t.Fatalf("%s: exit code %d\n%s", strings.Join(args, " "), code, p.Output())
	}
	struck := "fault   "
	if !strings.Contains(faults, ",") {
		struck += faults
	}
	if !strings.Contains(p.Stdout(), struck) {
		t.Errorf("no %s has struck", strings.TrimSpace(struck))
	}
	t.Log(p.Stdout())
}
