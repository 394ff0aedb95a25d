package doctor

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// From where on something is wrong.
const (
	clockApart   = time.Second // well below what the cluster tolerates, and far above what chrony leaves
	syncSlow     = 100 * time.Millisecond
	reserveTimes = 8 // volumes with less than so many reserves free
	lagBytes     = 64 << 20
	certificate  = 30 * 24 * time.Hour
	backupGrace  = 24 * time.Hour     // after one was due
	backupOld    = 7 * 24 * time.Hour // without a schedule
	openShare    = 0.8                // of the files that may be open
	openLeast    = 4096
	mapsLeast    = 65530 // the default of Linux
)

func judgeStart(f *Facts) []Line {
	const check = "start"
	if f.Ready {
		return []Line{fine(check, "the node serves requests")}
	}
	return []Line{finding(check, "wait, and follow /health/startup and the log of the node; in a cluster see that most members run and reach each other",
		"the node does not serve requests yet: %s", cmp.Or(f.Doing, "it starts"))}
}

func judgeMembers(f *Facts) (lines []Line) {
	const check = "members"
	for _, m := range f.Members {
		if !m.Alive {
			lines = append(lines, finding(check, Remedy("start the node, or see that the network lets it through; if it is gone for good: annals cluster remove "+m.Address),
				"%s is not alive", m.Address))
		}
	}
	switch {
	case len(lines) > 0:
		return lines
	case len(f.Members) < 2:
		return []Line{fine(check, "a node on its own")}
	}
	return []Line{fine(check, "all %d are alive", len(f.Members))}
}

func judgeClock(f *Facts) []Line {
	const check, remedy = "clock", Remedy("run chrony or ntpd on this machine and see that it is in step: chronyc tracking")
	c := f.Clock
	switch {
	case c == nil:
		return []Line{fine(check, "a node on its own has no clock to differ from")}
	case c.Wrong != "":
		return []Line{finding(check, remedy, "%s", c.Wrong)}
	case c.BehindLog > clockApart:
		return []Line{finding(check, remedy, "%s behind the newest event", short(c.BehindLog))}
	case max(c.Ahead, -c.Ahead) > clockApart:
		return []Line{finding(check, remedy, "%s %s those of the other members", short(max(c.Ahead, -c.Ahead)), aheadOrBehind(c.Ahead))}
	}
	return []Line{fine(check, "%s %s those of the other members", short(max(c.Ahead, -c.Ahead)), aheadOrBehind(c.Ahead))}
}

func aheadOrBehind(d time.Duration) string {
	if d < 0 {
		return "behind"
	}
	return "ahead of"
}

func judgeSync(f *Facts) []Line {
	const check = "fsync"
	s := f.Sync
	switch {
	case s == nil:
		return []Line{fine(check, "a database in memory waits for no disk")}
	case s.Hung:
		return []Line{finding(check, "look for errors of the disk in the log of the kernel (dmesg), and move the node to another disk", "an operation on the disk hangs")}
	case s.Longest > syncSlow:
		return []Line{finding(check, "give Db a disk of its own with a write cache that survives a power cut, or move other load off it; annals bench tells what it does",
			"the longest flush of late took %s, the mean one %s: writes wait for it", short(s.Longest), short(s.Mean))}
	}
	return []Line{fine(check, "the longest flush of late took %s, the mean one %s", short(s.Longest), short(s.Mean))}
}

func judgeVolumes(f *Facts) (lines []Line) {
	const check = "disk space"
	const remedy Remedy = "make the volume larger, remove other files from it, or scavenge: annals scavenge dry-run tells what that frees"
	for _, v := range f.Volumes {
		switch {
		case v.Err != nil:
			lines = append(lines, finding(check, Remedy("see that the folder is there, and that the node may read it"), "the space free for %s (%s) is not known: %v", v.Folder, v.Option, v.Err))
		case v.Free < v.Reserve:
			lines = append(lines, finding(check, remedy, "%s free for %s (%s), below the reserve of %s: writes are refused", size(v.Free), v.Folder, v.Option, size(v.Reserve)))
		case v.Free < reserveTimes*v.Reserve:
			lines = append(lines, finding(check, remedy, "only %s free for %s (%s); below %s writes are refused", size(v.Free), v.Folder, v.Option, size(v.Reserve)))
		default:
			lines = append(lines, fine(check, "%s free for %s (%s)", size(v.Free), v.Folder, v.Option))
		}
	}
	if len(lines) == 0 {
		lines = []Line{fine(check, "a database in memory needs none")}
	}
	return lines
}

func judgeCertificates(f *Facts) (lines []Line) {
	const check = "certificates"
	c := f.Certificates
	switch {
	case f.Insecure:
		return []Line{finding(check, "unless nobody else can reach it: make certificates with annals certs, and run the node without Insecure",
			"the node is insecure: no authentication, no TLS")}
	case c == nil:
		return []Line{fine(check, "the node serves without TLS: on loopback, or behind a proxy that has it")}
	}
	for _, one := range c.Findings {
		lines = append(lines, finding(check, cmp.Or(one.Remedy, "see annals certs check"), "%s", one.Text))
	}
	for _, one := range []struct {
		what string
		end  time.Time
	}{{"the node's certificate", c.Node}, {"an authority above it", c.Authority}} {
		if left := one.end.Sub(f.Now); left < certificate {
			lines = append(lines, finding(check, "renew it: annals certs renew, then POST /admin/reloadconfig; see docs/operations.md",
				"%s ends on %s", one.what, one.end.UTC().Format(time.DateOnly)))
		}
	}
	if len(lines) == 0 {
		lines = []Line{fine(check, "the first ends in %d days", int(min(c.Node.Sub(f.Now), c.Authority.Sub(f.Now)).Hours()/24))}
	}
	return lines
}

func judgeLag(f *Facts) []Line {
	const check = "lag"
	l := f.Lag
	switch {
	case l == nil:
		return []Line{fine(check, "this node leads")}
	case l.Leader == "":
		return []Line{finding(check, "see that most members run and reach each other at their replication addresses", "this node knows of no leader")}
	case !l.CaughtUp && l.Behind > lagBytes:
		return []Line{finding(check, "wait if the node was down; else look at its disk and network, and at annals_catchup metrics", "%s behind the leader %s", size(l.Behind), l.Leader)}
	}
	return []Line{fine(check, "%s behind the leader %s", size(max(0, l.Behind)), l.Leader)}
}

// unloaded is what to do about what does not run yet.
const unloaded Remedy = "they are being loaded: ask again in a moment, and if that does not help see the log of the node"

func judgeGroups(f *Facts) (lines []Line) {
	const check = "subscription groups"
	if !f.Leading {
		return []Line{fine(check, "the leader runs them: ask it")}
	}
	if f.Unloaded != "" {
		return []Line{finding(check, unloaded, "not known: %s", f.Unloaded)}
	}
	for _, g := range f.Groups {
		lines = append(lines, finding(check, "see that a consumer runs and answers its messages; look at parked ones and replay them in the UI, or restart all groups by POST /subscriptions/restart",
			"%s of stream %s makes no progress: %s", g.Group, g.Stream, g.Reason))
	}
	if len(lines) == 0 {
		lines = []Line{fine(check, "none is stalled")}
	}
	return lines
}

func judgeProjections(f *Facts) (lines []Line) {
	const check = "projections"
	if !f.Leading {
		return []Line{fine(check, "the leader runs them: ask it")}
	}
	if f.Unloaded != "" {
		return []Line{finding(check, unloaded, "not known: %s", f.Unloaded)}
	}
	for _, p := range f.Projections {
		lines = append(lines, finding(check, Remedy("correct its query, then annals projection enable "+p.Name+"; docs/projections.md says what a fault leaves behind"),
			"%s has faulted: %s", p.Name, p.Reason))
	}
	if len(lines) == 0 {
		lines = []Line{fine(check, "none is faulted")}
	}
	return lines
}

func judgeBackup(f *Facts) []Line {
	const check = "backup"
	const remedy Remedy = "see annals backup status and the log of the node for why, then start one: POST /admin/backup"
	b := f.Backup
	switch {
	case b == nil:
		return []Line{fine(check, "this node does not back itself up (BackupTo)")}
	case b.LastResult == "Failed":
		return []Line{finding(check, "make BackupTo writable again and with space, then start one: POST /admin/backup", "the last one failed: %s", b.LastError)}
	case b.Success.IsZero() && b.LastResult == "" && b.Due.After(f.Now.Add(-backupGrace)):
		return []Line{fine(check, "none yet, the first is due on %s", b.Due.UTC().Format(time.RFC3339))}
	case b.Success.IsZero():
		return []Line{finding(check, remedy, "none was made yet")}
	case !b.Due.IsZero() && f.Now.Sub(b.Due) > backupGrace, b.Due.IsZero() && f.Now.Sub(b.Success) > backupOld:
		return []Line{finding(check, remedy, "the last successful one is of %s, %s ago", b.Success.UTC().Format(time.RFC3339), short(f.Now.Sub(b.Success)))}
	}
	return []Line{fine(check, "the last successful one is of %s, %s ago", b.Success.UTC().Format(time.RFC3339), short(f.Now.Sub(b.Success)))}
}

func judgeChunks(f *Facts) (lines []Line) {
	const check = "chunks"
	for _, d := range f.Damaged {
		remedy := Remedy("check the disk; the node fetches the file anew from a member that has it whole, by itself: if that takes long, see its log")
		if d.Alone {
			remedy = "check the disk, stop the node, and restore the file from a backup, or annals verify --repair-from a node that has it"
		}
		lines = append(lines, finding(check, remedy, "%s is damaged", d.File))
	}
	if len(lines) == 0 {
		lines = []Line{fine(check, "none is known to be damaged")}
	}
	return lines
}

func judgePasswords(f *Facts) []Line {
	const check = "passwords"
	switch {
	case f.Insecure:
		return []Line{fine(check, "an insecure node has none")}
	case f.Unchecked != "":
		return []Line{finding(check, "ask again when the node has a leader and less to do", "whether default passwords are in use is not known: %s", f.Unchecked)}
	case len(f.DefaultPasswords) > 0:
		return []Line{finding(check, "change it in the UI, or by POST /users/NAME/command/change-password", "the default password still lets in %s", strings.Join(f.DefaultPasswords, " and "))}
	}
	return []Line{fine(check, "admin and ops have passwords of their own")}
}

func judgeLimits(f *Facts) (lines []Line) {
	const check = "limits"
	l := f.Limits
	if l == nil {
		return []Line{fine(check, "not known on this system")}
	}
	const files Remedy = "raise the limit: LimitNOFILE=65536 in the unit of systemd, or ulimit -n"
	switch {
	case l.MaxOpenFiles < openLeast:
		lines = append(lines, finding(check, files, "the node may open %d files, and needs up to three for each chunk and index table, and one for each connection", l.MaxOpenFiles))
	case float64(l.OpenFiles) > openShare*float64(l.MaxOpenFiles):
		lines = append(lines, finding(check, files, "%d of %d files are open", l.OpenFiles, l.MaxOpenFiles))
	}
	if l.MaxMaps > 0 && l.MaxMaps < mapsLeast {
		lines = append(lines, finding(check, "sysctl -w vm.max_map_count=262144, and the same in /etc/sysctl.d", "vm.max_map_count is %d, below the default of Linux", l.MaxMaps))
	}
	if len(lines) == 0 {
		lines = []Line{fine(check, "%d of %d files are open", l.OpenFiles, l.MaxOpenFiles)}
	}
	return lines
}

// short is a duration as people read it.
func short(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	case d >= time.Hour:
		return fmt.Sprintf("%d hours", int(d.Hours()))
	case d >= time.Minute:
		return fmt.Sprintf("%d minutes", int(d.Minutes()))
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// size is a number of bytes as people read it.
func size(n int64) string {
	const units = "KMGTPE"
	v, unit := float64(n), -1
	for v >= 1024 && unit < len(units)-1 {
		v /= 1024
		unit++
	}
	if unit < 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %ciB", v, units[unit])
}
