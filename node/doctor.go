package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/admin/doctor"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/stats"
)

// examination gathers the facts that the doctor judges.
type examination struct {
	n *Node

	// guards the fields below; held across the check of a password, of which there is one at a time
	mu sync.Mutex
	// passwords are the versions of the users that were looked at, and whether
	// their password was the default one: to find out takes long.
	passwords map[string]passwordFact
}

type passwordFact struct {
	version   int64
	isDefault bool
}

// examine is the whole: it takes a moment, and no longer than ctx.
func (e *examination) examine(ctx context.Context) []doctor.Line {
	return doctor.Examine(e.facts(ctx))
}

func (e *examination) facts(ctx context.Context) *doctor.Facts {
	n := e.n
	part := n.part()
	f := &doctor.Facts{
		Now: n.opts.Now(), Ready: part.Ready(), Doing: cmp.Or(part.Starting().Doing, n.Unready()), Insecure: n.config.Insecure, Alone: n.config.ClusterSize == 1, Limits: doctor.SystemLimits(),
	}
	if e := n.cluster.Standing.NoLeader(); e != nil && part.Serves() {
		f.NoLeader, f.Missing = "there is no leader: "+e.Error(), e.Missing
		if e.Leader != "" {
			f.NoLeader = e.Error()
		}
	}
	if n.cluster.Started() {
		e.cluster(ctx, n.cluster, f)
	} else {
		f.Lag = &doctor.Lag{}
	}
	if !n.config.MemDb {
		f.Volumes = e.volumes()
	}
	e.certificates(f)
	e.backup(ctx, f)
	f.OpenWriters = e.openWriters(ctx)
	if log, err := n.store.Log(); err == nil {
		for _, d := range log.Health.Damaged() {
			f.Damaged = append(f.Damaged, d.File)
		}
		if err := log.Index().Damage(); err != nil {
			f.Index = err.Error()
		}
		s := log.Postings().Status()
		if f.MalformedTags = s.MalformedTags; s.IsBuilding {
			f.PostingsMissing, f.PostingsBytes = s.LogEnd-s.Position, postingBytes*log.Index().Sizes().Entries
		}
		f.HiddenStreams = e.hiddenStreams(ctx)
	}
	if !f.Insecure {
		if err := e.defaultPasswords(ctx, f); err != nil {
			f.Unchecked = err.Error()
		}
	}
	return f
}

// cluster looks at the other nodes, and at the services of the leader.
func (e *examination) cluster(ctx context.Context, c *replication.Cluster, f *doctor.Facts) {
	metrics := e.metrics("annals_clock_offset_seconds", "annals_clock_behind_log_seconds", "eventstore_writer_flush_duration_max_seconds")
	if !e.n.config.MemDb {
		f.Sync = &doctor.Sync{Longest: metrics[2], Mean: c.Flushes().MeanTime, Hung: c.Hangs() != nil}
	}
	l, _ := c.Leadership()
	f.Leading = l.Leading
	if e.n.config.ClusterSize > 1 {
		f.Clock = &doctor.Clock{Ahead: metrics[0], BehindLog: metrics[1]}
		if err := c.Clock.Wrong(); err != nil {
			f.Clock.Wrong = err.Error()
		}
		view := c.View()
		f.Asking = e.asking(view.ServerHost, view.ServerPort)
		var lag doctor.Lag
		for i := range view.Members {
			m := &view.Members[i]
			address := endpoint(m.ReplicationHost, m.ReplicationPort)
			f.Members = append(f.Members, doctor.Member{Address: address, Alive: m.Alive, Removed: !c.Standing.Member(m.Node)})
			if m.State == event.StateLeader && m.Alive {
				lag.Leader, lag.Behind = address, m.Writer-e.n.store.LogEnd()
			}
		}
		if !f.Leading {
			lag.CaughtUp = c.CaughtUp()
			f.Lag = &lag
		}
	} else if !f.Leading {
		f.Lag = &doctor.Lag{}
	}
	if f.Leading {
		e.led(ctx, f)
	}
}

// asking are the flags by which a command asks this node, as it is reached and secured.
func (e *examination) asking(host string, port int) string {
	scheme, flags := "http", ""
	if e.n.https() {
		scheme = "https"
		if ca := e.n.config.TrustedRootCertificatesPath; ca != "" {
			flags = " --ca " + ca
		}
	}
	return " --node " + scheme + "://" + endpoint(host, port) + flags
}

// led looks at what runs on the leader alone.
func (e *examination) led(ctx context.Context, f *doctor.Facts) {
	groups, err := e.n.groups.List(ctx, "")
	if err != nil {
		f.Unloaded = err.Error()
		return
	}
	for i := range groups {
		if g := &groups[i]; g.Stalled != "" {
			f.Groups = append(f.Groups, doctor.Stalled{Stream: g.Stream, Group: g.Group, Reason: g.Stalled})
		}
	}
	if e.n.queries == nil {
		return
	}
	list, err := e.n.queries.List(projection.AllKinds)
	if err != nil {
		f.Unloaded = err.Error()
		return
	}
	for i := range list {
		if p := &list[i]; strings.HasPrefix(p.Status, "Faulted") {
			f.Projections = append(f.Projections, doctor.Faulted{Name: p.Name, Reason: p.StateReason})
		}
	}
}

// metrics reads metrics that hold seconds.
func (e *examination) metrics(names ...string) []time.Duration {
	values := make([]time.Duration, len(names))
	e.n.opts.Stats.Each(func(s stats.Sample) {
		for i, name := range names {
			if s.Name == name {
				values[i] = time.Duration(s.Value * float64(time.Second))
			}
		}
	})
	return values
}

func (e *examination) volumes() []doctor.Volume {
	c := e.n.config
	index := cmp.Or(c.Index, filepath.Join(c.Db, "index"))
	list := []doctor.Volume{{Option: "Db", Folder: c.Db}}
	if filepath.Dir(index) != filepath.Clean(c.Db) {
		list = append(list, doctor.Volume{Option: "Index", Folder: index})
	}
	for i := range list {
		v := &list[i]
		v.Reserve = e.n.opts.DiskReserve
		v.Free, v.Err = e.n.opts.FS.Free(v.Folder)
	}
	return list
}

func (e *examination) certificates(f *doctor.Facts) {
	if e.n.security == nil {
		return
	}
	set := e.n.security.Current()
	f.Certificates = &doctor.Certificates{Node: set.NodeExpires(), Authority: set.AuthorityExpires()}
	for _, one := range set.Warnings {
		if strings.HasPrefix(one.Text, "expire") {
			continue // As it was at the start. The ends are judged as they are now.
		}
		text := one.Text
		if one.File != "" {
			text = one.File + ": " + text
		}
		f.Certificates.Findings = append(f.Certificates.Findings, doctor.Certificate{Text: text, Remedy: doctor.Remedy(one.Remedy)})
	}
}

func (e *examination) backup(ctx context.Context, f *doctor.Facts) {
	if f.InMemory = e.n.config.MemDb; f.InMemory {
		return
	}
	last, success, due, ok := e.n.backupRuns.Outlook()
	if !ok {
		f.Elsewhere = e.backupElsewhere(ctx)
		return
	}
	f.Backup = &doctor.Backup{LastError: last.Error, Success: success, Due: due}
	if last.ID != "" {
		f.Backup.LastResult = string(last.Result)
	}
}

// backupElsewhere is the newest event of the history that all nodes share, nil if there is
// none or it cannot be read.
func (e *examination) backupElsewhere(ctx context.Context) *doctor.Backup {
	last, err := e.n.store.LastEvent(ctx, manager.Stream)
	if err != nil {
		return nil
	}
	var told struct {
		Result string `json:"result"`
		Error  string `json:"error"`
	}
	if last.Type == manager.TypeCompleted && json.Unmarshal(last.Data, &told) != nil {
		return nil
	}
	return &doctor.Backup{LastResult: told.Result, LastError: told.Error, Success: last.When()}
}

// openWriters reports whether callers without credentials may change streams without an
// access list, from other machines.
func (e *examination) openWriters(ctx context.Context) bool {
	if e.n.config.NodeIp.IsLoopback() {
		return false
	}
	const plain = "annals-doctor" // As any stream that has no list.
	return e.n.policy.CheckStream(ctx, access.Anonymous, plain, access.WriteRight) == nil ||
		e.n.policy.CheckStream(ctx, access.Anonymous, plain, access.DeleteRight) == nil
}

// defaultPasswords finds out which of the built-in users have the password that everybody knows.
func (e *examination) defaultPasswords(ctx context.Context, f *doctor.Facts) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.passwords == nil {
		e.passwords = map[string]passwordFact{}
	}
	for _, login := range []string{"admin", "ops"} {
		r, err := e.n.users.LastEvent(ctx, access.UserStream(login))
		if errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrStreamDeleted) || errors.Is(err, event.ErrEventNotFound) {
			continue // The user was deleted.
		}
		if err != nil {
			return fmt.Errorf("read user %s: %w", login, err)
		}
		fact, known := e.passwords[login]
		if !known || fact.version != r.Number {
			user, err := access.DecodeUser(r.Data)
			if err != nil {
				return fmt.Errorf("user %s: %w", login, err)
			}
			fact = passwordFact{version: r.Number}
			if !user.Disabled {
				if fact.isDefault, err = e.n.users.hasher.Verify(ctx, login, access.DefaultPassword, user.Password()); err != nil {
					return fmt.Errorf("check the password of %s: %w", login, err)
				}
			}
			e.passwords[login] = fact
		}
		if fact.isDefault {
			f.DefaultPasswords = append(f.DefaultPasswords, login)
		}
	}
	return nil
}

// postingBytes is about what an event takes in the index of categories, types and tags, without
// tags.
const postingBytes = 12

// hiddenStreams are some streams that have the name of an index; none while names are being
// collected.
func (e *examination) hiddenStreams(ctx context.Context) (hidden []string) {
	page, err := e.n.store.Names(ctx, event.NamesRead{Prefix: event.IndexPrefix, Count: 3})
	if err != nil {
		return nil
	}
	for _, s := range page.Streams {
		hidden = append(hidden, s.Name)
	}
	return hidden
}
