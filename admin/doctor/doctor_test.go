package doctor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// healthy is a leader of three of which nothing is wrong.
func healthy() *Facts {
	return &Facts{
		Now: noon, Ready: true, Leading: true,
		Members:      []Member{{Address: "a:2113", Alive: true}, {Address: "b:2113", Alive: true}, {Address: "c:2113", Alive: true}},
		Clock:        &Clock{Ahead: 3 * time.Millisecond, BehindLog: -time.Minute},
		Sync:         &Sync{Longest: 8 * time.Millisecond, Mean: time.Millisecond},
		Volumes:      []Volume{{Option: "Db", Folder: "/db", Free: 50 << 30, Reserve: 128 << 20}},
		Certificates: &Certificates{Node: noon.AddDate(1, 0, 0), Authority: noon.AddDate(5, 0, 0)},
		Backup:       &Backup{LastResult: "Success", Success: noon.Add(-10 * time.Hour), Due: noon.Add(14 * time.Hour)},
		Limits:       &Limits{OpenFiles: 100, MaxOpenFiles: 65536, MaxMaps: 65530},
	}
}

func TestHealthy(t *testing.T) {
	alone := healthy()
	alone.Members, alone.Clock, alone.Certificates, alone.Limits = nil, nil, nil, nil
	memory := healthy()
	memory.Sync, memory.Volumes, memory.Backup, memory.InMemory = nil, nil, nil, true
	follower := healthy()
	follower.Backup, follower.Elsewhere = nil, &Backup{LastResult: "Success", Success: noon.Add(-10 * time.Hour)}
	follower.Leading, follower.Lag = false, &Lag{Leader: "b:2113", Behind: 100, CaughtUp: true}
	for name, f := range map[string]*Facts{"leader": healthy(), "alone": alone, "memory": memory, "follower": follower} {
		lines := Examine(f)
		check.Equal(t, len(lines), len(checks), name, "lines checks")
		for _, l := range lines {
			if !l.Fine() || l.Text == "" || l.Check == "" || !strings.HasPrefix(l.String(), "ok    "+l.Check+": ") {
				t.Errorf("%s: %s", name, l)
			}
		}
	}
}

// TestFindings changes one fact at a time. Each finding has its remedy, and nothing else changes.
func TestFindings(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Facts)
		check  string
		text   string // a part of it; empty: fine
		remedy string // a part of it
	}{
		{"starting", func(f *Facts) { f.Ready, f.Doing = false, "reading the log" }, "start", "reading the log", "/health/startup"},
		{"no leader to be had", func(f *Facts) {
			f.Ready, f.NoLeader, f.Missing = false, "there is no leader: 1 of 3 voting nodes can be reached, 2 are needed", []string{"b:1112", "c:1112"}
		}, "start", "the node serves reads, but there is no leader: 1 of 3 voting nodes can be reached, 2 are needed; writes are refused", "start b:1112 and c:1112, or"},
		{"no leader, no one missing", func(f *Facts) {
			f.Ready, f.NoLeader = false, "there is no leader: 3 of 3 voting nodes can be reached, 2 are needed"
		}, "start", "serves reads", "reach each other"},
		{"a dead member", func(f *Facts) { f.Members[1].Alive = false }, "members", "b:2113 is not alive", "annals cluster remove b:2113"},
		{"a dead member of a secured cluster", func(f *Facts) {
			f.Members[1].Alive, f.Asking = false, " --node https://a:2113 --ca /etc/annals/ca"
		}, "members", "b:2113 is not alive", "annals cluster remove b:2113 --node https://a:2113 --ca /etc/annals/ca"},
		{"a member that was removed", func(f *Facts) { f.Members[1] = Member{Address: "b:2113", Removed: true} }, "members", "", ""},
		{"no majority", func(f *Facts) {
			for i := range f.Members[1:] {
				f.Members[1+i].Alive = false
			}
		}, "members", "is not alive", "annals cluster recover --majority-lost"},
		{"clock ahead", func(f *Facts) { f.Clock.Ahead = 90 * time.Second }, "clock", "1 minutes ahead of those of the other members", "chrony"},
		{"clock behind", func(f *Facts) { f.Clock.Ahead = -2 * time.Second }, "clock", "2.0 s behind those of", "chrony"},
		{"clock behind the log", func(f *Facts) { f.Clock.BehindLog = time.Hour }, "clock", "1 hours earlier than the newest event", "chrony"},
		{"clock known to be wrong", func(f *Facts) { f.Clock.Wrong = "no majority agrees" }, "clock", "no majority agrees", "chrony"},
		{"slow disk", func(f *Facts) { f.Sync.Longest = 350 * time.Millisecond }, "fsync", "350.0 ms", "disk of its own"},
		{"hung disk", func(f *Facts) { f.Sync.Hung = true }, "fsync", "hangs", "dmesg"},
		{"disk full", func(f *Facts) { f.Volumes[0].Free = 100 << 20 }, "disk space", "100.0 MiB free for /db (Db), below the reserve of 128.0 MiB: writes are refused", "scavenge"},
		{"disk nearly full", func(f *Facts) { f.Volumes[0].Free = 900 << 20 }, "disk space", "only 900.0 MiB free", "scavenge"},
		{"disk just right", func(f *Facts) { f.Volumes[0].Free = 1 << 30 }, "disk space", "", ""},
		{"volume gone", func(f *Facts) { f.Volumes[0].Err = errors.New("input/output error") }, "disk space", "input/output error", "see that the folder is there"},
		{"certificate ends", func(f *Facts) { f.Certificates.Node = noon.AddDate(0, 0, 29) }, "certificates", "the node's certificate ends on 2026-03-30", "annals certs renew"},
		{"authority ends", func(f *Facts) { f.Certificates.Authority = noon.AddDate(0, 0, -1) }, "certificates", "an authority above it ends on 2026-02-28", "renew"},
		{"certificate wrong", func(f *Facts) {
			f.Certificates.Findings = []Certificate{{"does not name node1", "issue one that does"}}
		}, "certificates", "does not name node1", "issue one that does"},
		{"certificate wrong, no remedy given", func(f *Facts) { f.Certificates.Findings = []Certificate{{"odd", ""}} }, "certificates", "odd", "annals certs check"},
		{"insecure", func(f *Facts) { f.Insecure = true }, "certificates", "insecure", "annals certs"},
		{"no leader", func(f *Facts) { f.Lag = &Lag{} }, "lag", "knows of no leader", "most members"},
		{"far behind", func(f *Facts) { f.Lag = &Lag{Leader: "b:2113", Behind: 1 << 30} }, "lag", "lags the leader b:2113 by 1.0 GiB", "disk and network"},
		{"a little behind", func(f *Facts) { f.Lag = &Lag{Leader: "b:2113", Behind: 1 << 20} }, "lag", "", ""},
		{"stalled group", func(f *Facts) { f.Groups = []Stalled{{"orders", "billing", "no answer for 5m"}} }, "subscription groups", "billing of stream orders makes no progress: no answer for 5m", "consumer"},
		{"faulted projection", func(f *Facts) { f.Projections = []Faulted{{"totals", "x is not defined"}} }, "projections", "totals has faulted: x is not defined", "annals projection enable totals"},
		{"backup failed", func(f *Facts) { f.Backup.LastResult, f.Backup.LastError = "Failed", "no space left" }, "backup", "no space left", "BackupTo"},
		{"backup overdue", func(f *Facts) { f.Backup.Due = noon.Add(-25 * time.Hour) }, "backup", "10 hours ago", "annals backup status"},
		{"backup a little overdue", func(f *Facts) { f.Backup.Due = noon.Add(-time.Hour) }, "backup", "", ""},
		{"backup old, no schedule", func(f *Facts) { f.Backup.Due, f.Backup.Success = time.Time{}, noon.AddDate(0, 0, -8) }, "backup", "8 days ago", "POST /admin/backup"},
		{"no backup yet", func(f *Facts) { *f.Backup = Backup{} }, "backup", "none was made yet", "POST /admin/backup"},
		{"no backup yet, one is due", func(f *Facts) { *f.Backup = Backup{Due: noon.Add(time.Hour)} }, "backup", "", ""},
		{"backup stopped, none before", func(f *Facts) { *f.Backup = Backup{LastResult: "Stopped", Due: noon.Add(time.Hour)} }, "backup", "none was made yet", "POST /admin/backup"},
		{"no backup anywhere", func(f *Facts) { f.Backup = nil }, "backup", "this node makes none", "set BackupTo and BackupSchedule"},
		{"no backup of late", func(f *Facts) {
			f.Backup, f.Elsewhere = nil, &Backup{LastResult: "Success", Success: noon.AddDate(0, 0, -8)}
		}, "backup", "2026-02-21", "BackupTo"},
		{"a backup elsewhere failed", func(f *Facts) { f.Backup, f.Elsewhere = nil, &Backup{LastResult: "Failed", LastError: "no space"} }, "backup", "no space", "ask the node"},
		{"a backup elsewhere", func(f *Facts) {
			f.Backup, f.Elsewhere = nil, &Backup{LastResult: "Success", Success: noon.Add(-time.Hour)}
		}, "backup", "", ""},
		{"anonymous writers", func(f *Facts) { f.OpenWriters = true }, "anonymous access", "may read, write and delete", "AllowAnonymousStreamAccess=false"},
		{"damaged chunk", func(f *Facts) { f.Damaged = []string{"chunk-000003.000000"} }, "chunks", "chunk-000003.000000 is damaged", "fetches the file again"},
		{"damaged chunk, alone", func(f *Facts) { f.Damaged, f.Alone = []string{"chunk-000003.000000"}, true }, "chunks", "is damaged", "--repair-from"},
		{"index of categories is built", func(f *Facts) { f.PostingsMissing, f.PostingsBytes = 70, 12<<10 }, "index", "70 B of log are left; it takes about 12.0 KiB", "annals index shows how far it is"},
		{"streams hidden by indexes", func(f *Facts) { f.HiddenStreams = []string{"$idx-ce-a", "$idx-x"} }, "index", "$idx-ce-a, $idx-x: names", "in $all"},
		{"malformed tags", func(f *Facts) { f.MalformedTags = 3 }, "index", "3 events have a malformed $tags", "write these events again"},
		{"damaged index", func(f *Facts) { f.Index = "index/5f0c3b at 32: wrong checksum" }, "index", "at 32: wrong checksum", "builds the index again"},
		{"default password", func(f *Facts) { f.DefaultPasswords = []string{"admin", "ops"} }, "passwords", "lets in admin and ops", "annals user passwd admin and annals user passwd ops"},
		{"passwords not known", func(f *Facts) { f.Unchecked = "too busy" }, "passwords", "too busy", "ask again"},
		{"few files", func(f *Facts) { f.Limits.MaxOpenFiles = 1024 }, "limits", "may open 1024 files", "LimitNOFILE"},
		{"many files open", func(f *Facts) { f.Limits.OpenFiles = 60000 }, "limits", "60000 of 65536", "LimitNOFILE"},
		{"few maps", func(f *Facts) { f.Limits.MaxMaps = 1000 }, "limits", "vm.max_map_count is 1000", "sysctl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			c.change(f)
			found := false
			for _, l := range Examine(f) {
				switch {
				case l.Fine():
				case c.text == "" || l.Check != c.check:
					t.Errorf("also: %s", l)
				default:
					found = true
					if !strings.Contains(l.Text, c.text) || !strings.Contains(string(l.Remedy), c.remedy) || !strings.HasPrefix(l.String(), "WRONG "+c.check+": ") {
						t.Errorf("%s", l)
					}
				}
			}
			check.Equal(t, found, c.text != "", "found")
		})
	}
}

// A fact that is not known is not reported as fine.
func TestUnloaded(t *testing.T) {
	f := healthy()
	f.Unloaded = "the database is not ready"
	if lines := Examine(f); Wrong(lines) != 2 {
		t.Errorf("%v", lines)
	}
}

// A finding without a remedy cannot be made.
func TestRemedy(t *testing.T) {
	if l := (Line{Check: "x", Text: "anything"}); !l.Fine() {
		t.Error("a line without a remedy is a finding")
	}
	defer func() {
		if recover() == nil {
			t.Error("a finding without a remedy was made")
		}
	}()
	new(report).wrong("", "broken")
}
