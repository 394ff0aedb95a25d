package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// From where on something is wrong.
const (
	// well below what the cluster tolerates, and far above what chrony leaves
	clockApart   = time.Second
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

// majorityLost is what is left to do without the nodes that would elect a leader.
const majorityLost = "annals cluster recover --majority-lost on one node that is left (docs/operations.md, A majority lost for good)"

func judgeStart(f *Facts, r *report) {
	switch {
	case !f.Ready && f.NoLeader != "":
		remedy := "see that the nodes reach each other at their replication addresses, and read their logs"
		if len(f.Missing) > 0 {
			remedy = "start " + strings.Join(f.Missing, " and ") + ", or see that the network lets them through; if most nodes are gone for good: " + majorityLost
		}
		r.wrong(Remedy(remedy), "the node serves reads, but %s; writes are refused", f.NoLeader)
	case !f.Ready:
		r.wrong("wait, and follow /health/startup and the log of the node; in a cluster see that most members run and reach each other",
			"the node does not serve requests yet: %s", cmp.Or(f.Doing, "it starts"))
	}
}

func judgeMembers(f *Facts, r *report) {
	alive := 0
	members := slices.DeleteFunc(slices.Clone(f.Members), func(m Member) bool { return m.Removed && !m.Alive })
	for _, m := range members {
		if m.Alive {
			alive++
		}
	}
	for _, m := range members {
		gone := "annals cluster remove " + m.Address + f.Asking
		switch {
		case m.Alive:
			continue
		case 2*alive <= len(members): // Without a majority no node could remove it.
			gone = majorityLost
		}
		r.wrong(Remedy("start the node, or see that the network lets it through; if it is gone for good: "+gone), "%s is not alive", m.Address)
	}
	if alive == len(members) && alive > 1 {
		r.fine("all %d are alive", alive)
	}
}

func judgeClock(f *Facts, r *report) {
	const remedy Remedy = "run chrony or ntpd on this machine and see that it is in step: chronyc tracking"
	c := f.Clock
	if c == nil {
		return
	}
	apart, side := max(c.Ahead, -c.Ahead), "ahead of"
	if c.Ahead < 0 {
		side = "behind"
	}
	switch {
	case c.Wrong != "":
		r.wrong(remedy, "%s", c.Wrong)
	case c.BehindLog > clockApart:
		r.wrong(remedy, "%s earlier than the newest event", short(c.BehindLog))
	case apart > clockApart:
		r.wrong(remedy, "%s %s those of the other members", short(apart), side)
	default:
		r.fine("%s %s those of the other members", short(apart), side)
	}
}

func judgeSync(f *Facts, r *report) {
	switch s := f.Sync; {
	case s == nil:
	case s.Hung:
		r.wrong("look for errors of the disk in the log of the kernel (dmesg), and move the node to another disk", "an operation on the disk hangs")
	case s.Longest > syncSlow:
		r.wrong("give Db a disk of its own with a write cache that survives a power cut, or move other load off it; annals bench tells what it does",
			"the longest flush of late took %s, the mean one %s: writes wait for it", short(s.Longest), short(s.Mean))
	default:
		r.fine("the longest flush of late took %s, the mean one %s", short(s.Longest), short(s.Mean))
	}
}

func judgeVolumes(f *Facts, r *report) {
	const remedy Remedy = "make the volume larger, remove other files from it, or scavenge: annals scavenge dry-run tells what that frees"
	for _, v := range f.Volumes {
		switch {
		case v.Err != nil:
			r.wrong("see that the folder is there, and that the node may read it", "the space free for %s (%s) is not known: %v", v.Folder, v.Option, v.Err)
		case v.Free < v.Reserve:
			r.wrong(remedy, "%s free for %s (%s), below the reserve of %s: writes are refused", size(v.Free), v.Folder, v.Option, size(v.Reserve))
		case v.Free < reserveTimes*v.Reserve:
			r.wrong(remedy, "only %s free for %s (%s); below %s writes are refused", size(v.Free), v.Folder, v.Option, size(v.Reserve))
		default:
			r.fine("%s free for %s (%s)", size(v.Free), v.Folder, v.Option)
		}
	}
}

func judgeCertificates(f *Facts, r *report) {
	c := f.Certificates
	switch {
	case f.Insecure:
		r.wrong("unless no one else can reach it: make certificates with annals certs, and run the node without Insecure",
			"the node is insecure: no authentication, no TLS")
		return
	case c == nil:
		return
	}
	before := len(r.lines)
	for _, one := range c.Findings {
		r.wrong(cmp.Or(one.Remedy, "see annals certs check"), "%s", one.Text)
	}
	for _, one := range []struct {
		what string
		end  time.Time
	}{{"the node's certificate", c.Node}, {"an authority above it", c.Authority}} {
		if left := one.end.Sub(f.Now); left < certificate {
			r.wrong("renew it: annals certs renew, then POST /admin/reloadconfig; see docs/operations.md",
				"%s ends on %s", one.what, one.end.UTC().Format(time.DateOnly))
		}
	}
	if len(r.lines) == before {
		r.fine("the first ends in %d days", int(min(c.Node.Sub(f.Now), c.Authority.Sub(f.Now)).Hours()/24))
	}
}

func judgeLag(f *Facts, r *report) {
	switch l := f.Lag; {
	case l == nil:
	case l.Leader == "":
		r.wrong("see that most members run and reach each other at their replication addresses", "this node knows of no leader")
	case !l.CaughtUp && l.Behind > lagBytes:
		r.wrong("wait if the node was down; else look at its disk and network, and at annals_catchup metrics", "lags the leader %s by %s", l.Leader, size(l.Behind))
	default:
		r.fine("lags the leader %s by %s", l.Leader, size(max(0, l.Behind)))
	}
}

func judgeGroups(f *Facts, r *report) {
	if !loaded(f, r) {
		return
	}
	for _, g := range f.Groups {
		r.wrong("see that a consumer runs and answers its messages; look at parked ones and replay them in the UI, or restart all groups by POST /subscriptions/restart",
			"%s of stream %s makes no progress: %s", g.Group, g.Stream, g.Reason)
	}
}

func judgeProjections(f *Facts, r *report) {
	if !loaded(f, r) {
		return
	}
	for _, p := range f.Projections {
		r.wrong(Remedy("correct its query, then annals projection enable "+p.Name+"; docs/projections.md says what a fault leaves"),
			"%s has faulted: %s", p.Name, p.Reason)
	}
}

// loaded reports whether this node knows of groups and projections, and says why if not.
func loaded(f *Facts, r *report) bool {
	switch {
	case !f.Leading:
		r.fine("the leader runs them: ask it")
	case f.Unloaded != "":
		r.wrong("they are being loaded: ask again in a moment, and if that does not help see the log of the node", "not known: %s", f.Unloaded)
	default:
		return true
	}
	return false
}

func judgeBackup(f *Facts, r *report) {
	const remedy Remedy = "see annals backup status and the log of the node for why, then start one: POST /admin/backup"
	b := f.Backup
	switch {
	case f.InMemory:
		r.fine("a database in memory has none")
		return
	case b == nil:
		judgeOthersBackup(f, r)
		return
	}
	latest := fmt.Sprintf("the last successful one is of %s, %s ago", b.Success.UTC().Format(time.RFC3339), short(f.Now.Sub(b.Success)))
	switch {
	case b.LastResult == "Failed":
		r.wrong("make BackupTo writable again and with space, then start one: POST /admin/backup", "the last one failed: %s", b.LastError)
	case b.Success.IsZero() && b.LastResult == "" && b.Due.After(f.Now.Add(-backupGrace)):
		r.fine("none yet, the first is due on %s", b.Due.UTC().Format(time.RFC3339))
	case b.Success.IsZero():
		r.wrong(remedy, "none was made yet")
	case !b.Due.IsZero() && f.Now.Sub(b.Due) > backupGrace, b.Due.IsZero() && f.Now.Sub(b.Success) > backupOld:
		r.wrong(remedy, "%s", latest)
	default:
		r.fine("%s", latest)
	}
}

// judgeOthersBackup judges a node that makes no backups: another may, or no one does.
func judgeOthersBackup(f *Facts, r *report) {
	const remedy Remedy = "set BackupTo and BackupSchedule on one node, as docs/backup.md says; the node cannot see copies that are made in other ways, so see to those yourself"
	switch e := f.Elsewhere; {
	case e == nil:
		r.wrong(remedy, "no backup is known: this node makes none, and no other node has recorded one")
	case e.LastResult == "Failed":
		r.wrong("ask the node that makes them: annals backup status", "the last one of another node failed: %s", e.LastError)
	case f.Now.Sub(e.Success) > backupOld:
		r.wrong(remedy, "this node makes none, and the last one of another node is of %s", e.Success.UTC().Format(time.RFC3339))
	default:
		r.fine("another node makes them, the last at %s", e.Success.UTC().Format(time.RFC3339))
	}
}

func judgeChunks(f *Facts, r *report) {
	remedy := Remedy("check the disk; the node fetches the file again by itself, from a member that has it whole: if that takes long, see its log")
	if f.Alone {
		remedy = "check the disk, stop the node, and restore the file from a backup, or annals verify --repair-from a node that has it"
	}
	for _, file := range f.Damaged {
		r.wrong(remedy, "%s is damaged", file)
	}
}

func judgeIndex(f *Facts, r *report) {
	if f.Index != "" {
		r.wrong("check the disk: the node builds the index again from the log by itself", "%s", f.Index)
	}
	if f.PostingsMissing > 0 {
		r.wrong("wait, annals index shows how far it is: until then reads of indexes, queries and conditions are refused or slow",
			"the index of categories, types and tags is being built, %s of log are left; it takes about %s on disk, and more where events have tags",
			size(f.PostingsMissing), size(f.PostingsBytes))
	}
	if len(f.HiddenStreams) > 0 {
		r.wrong("read their events in $all, and write them to streams of other names",
			"%s: names that begin with $idx are those of indexes, which hide these streams", strings.Join(f.HiddenStreams, ", "))
	}
	if f.MalformedTags > 0 {
		r.wrong("write these events again with tags that are right, if queries are to find them by their tags",
			"%d events have a malformed $tags and count as events without tags", f.MalformedTags)
	}
}

func judgePasswords(f *Facts, r *report) {
	switch {
	case f.Insecure:
		r.fine("an insecure node has none")
	case f.Unchecked != "":
		r.wrong("ask again when the node has a leader and less to do", "whether default passwords are in use is not known: %s", f.Unchecked)
	case len(f.DefaultPasswords) > 0:
		var commands []string
		for _, login := range f.DefaultPasswords {
			commands = append(commands, "annals user passwd "+login)
		}
		r.wrong(Remedy("change it: "+strings.Join(commands, " and ")), "the default password still lets in %s", strings.Join(f.DefaultPasswords, " and "))
	}
}

func judgeWriters(f *Facts, r *report) {
	switch {
	case f.Insecure:
		r.fine("an insecure node asks no one")
	case f.OpenWriters:
		r.wrong("set AllowAnonymousStreamAccess=false, or give $settings a list of its own; see docs/users.md",
			"callers without credentials may read, write and delete streams that have no access list, from other machines")
	}
}

func judgeLimits(f *Facts, r *report) {
	l := f.Limits
	if l == nil {
		return
	}
	before := len(r.lines)
	const files Remedy = "raise the limit: LimitNOFILE=65536 in the unit of systemd, or ulimit -n"
	switch {
	case l.MaxOpenFiles < openLeast:
		r.wrong(files, "the node may open %d files, and needs up to three for each chunk and index table, and one for each connection", l.MaxOpenFiles)
	case float64(l.OpenFiles) > openShare*float64(l.MaxOpenFiles):
		r.wrong(files, "%d of %d files are open", l.OpenFiles, l.MaxOpenFiles)
	}
	if l.MaxMaps > 0 && l.MaxMaps < mapsLeast {
		r.wrong("sysctl -w vm.max_map_count=262144, and the same in /etc/sysctl.d", "vm.max_map_count is %d, below the default of Linux", l.MaxMaps)
	}
	if len(r.lines) == before {
		r.fine("%d of %d files are open", l.OpenFiles, l.MaxOpenFiles)
	}
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
