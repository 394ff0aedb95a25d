package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/s3"
)

// defaultThrottle leaves a node that backs itself up most of its speed, MiB/s.
const defaultThrottle = 50

func backupCommand(stdout, stderr io.Writer) *cobra.Command {
	return group("backup", "Back nodes up, and restore them", "",
		backupCreate(stdout, stderr), backupList(stdout), backupVerify(stdout, stderr), backupRestore(stdout, stderr), backupPrune(stdout),
		backupStatusCommand(stdout))
}

// backupPlace is where backups are kept.
type backupPlace struct{ destination, endpoint string }

func (p *backupPlace) add(flags *pflag.FlagSet, name string) {
	flags.StringVar(&p.destination, name, "", "where backups are kept: a folder, or s3://bucket/prefix")
	flags.StringVar(&p.endpoint, "s3-endpoint", "", "URL of the object store (default that of Amazon in $AWS_REGION); keys: $AWS_ACCESS_KEY_ID, $AWS_SECRET_ACCESS_KEY")
}

// open returns the target. It refuses a missing folder, unless the command writes to it.
func (p *backupPlace) open(flag string, writes bool) (backup.Target, error) {
	switch {
	case p.destination == "":
		return nil, fmt.Errorf("--%s is needed: where backups are kept", flag)
	case s3.IsURL(p.destination):
		t, err := s3.New(s3.Options{URL: p.destination, Endpoint: p.endpoint})
		if err != nil { // A nil *s3.Target is not a nil Target.
			return nil, err
		}
		return t, nil
	case p.endpoint != "":
		return nil, fmt.Errorf("--s3-endpoint is for s3://bucket/prefix, and --%s is the folder %s", flag, p.destination)
	}
	info, err := os.Stat(p.destination)
	switch {
	case errors.Is(err, fs.ErrNotExist) && writes:
	case err != nil:
		return nil, fmt.Errorf("no backups can be there: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("%s is not a folder", p.destination)
	}
	return backup.NewFolder(nil, p.destination), nil
}

// backupSubcommand makes a command with the exit code for work that could not be tried.
func backupSubcommand(use, short, long string, run func(ctx context.Context) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: untilInterrupted(func(ctx context.Context) error {
			err := run(ctx)
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			if untried(err) {
				return cannot(err)
			}
			return err
		}),
	}
	return cmd
}

// backupReader makes a command that works with the backups at --from.
func backupReader(use, short, long string, run func(ctx context.Context, target backup.Target, asJSON bool) error) *cobra.Command {
	var p backupPlace
	var asJSON bool
	cmd := backupSubcommand(use, short, long, func(ctx context.Context) error {
		target, err := p.open("from", false)
		if err != nil {
			return cannot(err)
		}
		return run(ctx, target, asJSON)
	})
	p.add(cmd.Flags(), "from")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

// untried reports whether an error means that nothing could be tried.
func untried(err error) bool {
	if _, ok := errors.AsType[*backup.CutInside](err); ok {
		return true
	}
	return errors.Is(err, backup.ErrNoBackup) || errors.Is(err, backup.ErrTooLate) || errors.Is(err, backup.ErrVolume) || errors.Is(err, backup.ErrNotEmpty)
}

// backupCreate is annals backup create.
func backupCreate(stdout, stderr io.Writer) *cobra.Command {
	var f clusterFlags
	var p backupPlace
	var full, verify bool
	throttle := defaultThrottle
	cmd := backupSubcommand("create --to destination", "Back a node up, while it serves", `Copy the database of a node to a folder of this machine or to an object store. The node
keeps serving. The backup has every event that was acknowledged before it began.

Files that an earlier backup there already has are not copied again: they are hard links,
or the same objects. A backup is listed when all of it is durable and every byte agrees
with its checksum. A backup that fails leaves nothing.

Exit codes: 0 success, 1 failed, and nothing is listed, 2 not tried: wrong arguments, no
node, or no right.`, func(ctx context.Context) error {
		if throttle < 0 {
			return cannot(errors.New("--throttle-mib must be 0 or above"))
		}
		target, err := p.open("to", true)
		if err != nil {
			return cannot(err)
		}
		c, err := f.connect(f.node)
		if err != nil {
			return cannot(err)
		}
		defer c.Close()
		id := backup.NewID(time.Now())
		source := &nodeSource{nodeClient: c}
		noted := backup.NewNotedSource(source, backupNotes(), f.node, p.destination, id)
		if err := noted.EndLeftovers(ctx, target); err != nil {
			return cannot(err)
		}
		bar := newBytesBar(stderr)
		m, err := backup.Create(ctx, noted, target, backup.CreateOptions{ID: id, Full: full, Verify: verify, Throttle: int64(throttle) << 20, Progress: bar.backup})
		bar.close()
		if err != nil && !source.begun {
			return cannot(err)
		}
		if err != nil {
			return fmt.Errorf("no backup was made: %w", err)
		}
		if f.json {
			return printJSON(stdout, madeBackupOf(&m))
		}
		_, err = fmt.Fprintf(stdout, "backup %s (%s): up to position %d, %s in %d files, %s copied in %.1f s\n", m.ID, m.Kind, m.Position, humanBytes(m.Bytes()), len(m.Files), humanBytes(m.BytesCopied), m.Seconds)
		return err
	})
	flags := cmd.Flags()
	f.add(flags, "address of the node", "print the result as JSON")
	p.add(flags, "to")
	flags.BoolVar(&full, "full", false, "copy everything, even if an earlier backup has it")
	flags.BoolVar(&verify, "verify", false, "read the backup after it is written, and compare it")
	flags.IntVar(&throttle, "throttle-mib", defaultThrottle, "most MiB to read in a second; 0: no limit")
	return cmd
}

// backupNotes is the folder of this user that has a note for each running backup. It is empty where
// users have no such folder.
func backupNotes() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "annals", "backups")
}

// madeBackup is a backup as create prints it.
type madeBackup struct {
	ID       string    `json:"id"`
	Kind     string    `json:"kind"`
	Position int64     `json:"position"`
	Time     time.Time `json:"time"`
	Files    int       `json:"files"`
	Bytes    int64     `json:"bytes"`
	Copied   int64     `json:"bytesCopied"`
	Seconds  float64   `json:"seconds"`
}

func madeBackupOf(m *backup.Manifest) madeBackup {
	return madeBackup{m.ID, m.Kind, m.Position, m.Time, len(m.Files), m.Bytes(), m.BytesCopied, m.Seconds}
}

// listedBackup is a backup as list prints it.
type listedBackup struct {
	madeBackup
	Checked bool   `json:"checked"`
	Node    string `json:"nodeId"`
	Cluster string `json:"clusterId"`
}

func backupList(stdout io.Writer) *cobra.Command {
	const short = "List backups, the oldest first"
	const long = short + ". Damaged ones follow the others: exit code 1."
	return backupReader("list --from destination", short, long, func(ctx context.Context, target backup.Target, asJSON bool) error {
		all, damaged := target.List(ctx)
		if _, ok := errors.AsType[*backup.Damaged](damaged); damaged != nil && !ok {
			return damaged
		}
		list := make([]listedBackup, 0, len(all))
		for i := range all {
			m := &all[i]
			list = append(list, listedBackup{madeBackupOf(m), m.Verified, m.NodeID, m.ClusterID})
		}
		if asJSON {
			return errors.Join(damaged, printJSON(stdout, map[string]any{"backups": list}))
		}
		for i := range list {
			b := &list[i]
			if _, err := fmt.Fprintf(stdout, "%s  %-11s  up to %s, position %d, %s, %s copied\n", b.ID, b.Kind, b.Time.UTC().Format(time.RFC3339), b.Position, humanBytes(b.Bytes), humanBytes(b.Copied)); err != nil {
				return err
			}
		}
		return damaged
	})
}

func backupVerify(stdout, stderr io.Writer) *cobra.Command {
	var id string
	var all bool
	cmd := backupReader("verify --from destination", "Check a backup", `Compare every file of a backup with its checksum, check the log, and compare the index
with the log. Each finding is one line. A backup in an object store is restored into a
temporary folder ($TMPDIR) for that, which is removed again.

Without --id the newest backup is checked, with --all each one.

Exit codes: 0 no damage, 1 damage found, 2 nothing could be checked.`, func(ctx context.Context, target backup.Target, asJSON bool) error {
		if id != "" && all {
			return cannot(errors.New("--id and --all exclude each other"))
		}
		var some []backup.Manifest
		var err error
		if all {
			if some, err = target.List(ctx); err == nil && len(some) == 0 {
				err = fmt.Errorf("%w: none at all", backup.ErrNoBackup)
			}
		} else {
			some = make([]backup.Manifest, 1)
			some[0], err = backup.Find(ctx, target, id)
		}
		if err != nil {
			return err
		}
		scratch, err := os.MkdirTemp("", "annals-verify-")
		if err != nil {
			return cannot(err)
		}
		problems, err := int64(0), error(nil)
		findings := []verifiedFinding{}
		for i := range some {
			m := &some[i]
			bar := newBytesBar(stderr)
			var n int64
			n, err = backup.Verify(ctx, target, m, backup.VerifyOptions{Scratch: filepath.Join(scratch, "db"), Progress: bar.backup, Report: func(f backup.Finding) {
				findings = append(findings, verifiedFinding{m.ID, f})
			}})
			bar.close()
			if problems += n; err != nil {
				break
			}
		}
		if err = errors.Join(err, os.RemoveAll(scratch)); err != nil {
			return err
		}
		if asJSON {
			err = printJSON(stdout, map[string]any{"backups": len(some), "errors": problems, "findings": findings})
		} else {
			for _, f := range findings {
				_, e := fmt.Fprintf(stdout, "%s: %s: %s: %s: %s\n", f.Backup, f.Severity, f.Kind, f.File, f.Detail)
				err = errors.Join(err, e)
			}
			if problems == 0 {
				_, e := fmt.Fprintf(stdout, "%s checked, no errors\n", counted(len(some), "backup"))
				err = errors.Join(err, e)
			}
		}
		if err == nil && problems > 0 {
			err = &codedError{code: exitProblems}
		}
		return err
	})
	cmd.Flags().StringVar(&id, "id", "", "which backup")
	cmd.Flags().BoolVar(&all, "all", false, "every backup")
	return cmd
}

type verifiedFinding struct {
	Backup string `json:"backup"`
	backup.Finding
}

func backupRestore(stdout, stderr io.Writer) *cobra.Command {
	var o backup.RestoreOptions
	var at string
	var position int64
	cmd := backupReader("restore --from destination --db folder", "Make a data folder from a backup", `Make a data folder from a backup, by default the newest one. The folder must be missing or
empty. It gets its name when every checksum is right.

With --at the result has no write that was made later. With --to-position it has no write
that ends after that position. The command takes the oldest backup that reaches there and
cuts it, exact to the write. A backup has no consensus state: a restored node joins its
cluster with its data.

Exit codes: 0 success, 1 failed or damaged, and nothing is left, 2 not tried: wrong
arguments, no such backup, or the folder is not empty.`, func(ctx context.Context, target backup.Target, asJSON bool) error {
		given := 0
		for _, is := range []bool{o.ID != "", at != "", position >= 0} {
			if is {
				given++
			}
		}
		switch {
		case o.Dir == "":
			return cannot(errors.New("--db is needed: the folder to be made"))
		case given > 1:
			return cannot(errors.New("--id, --at and --to-position exclude each other"))
		case position < -1:
			return cannot(errors.New("--to-position must be 0 or above"))
		}
		var err error
		if at != "" {
			if o.At, err = time.Parse(time.RFC3339Nano, at); err != nil {
				return cannot(fmt.Errorf("--at must be an instant like 2026-01-31T12:00:00Z: %w", err))
			}
		}
		if position >= 0 {
			o.ToPosition = &position
		}
		// The temporary folder must not be in ".".
		for _, dir := range []*string{&o.Dir, &o.IndexDir} {
			if *dir == "" {
				continue
			}
			if *dir, err = filepath.Abs(*dir); err != nil {
				return cannot(err)
			}
		}
		bar := newBytesBar(stderr)
		o.Progress = bar.backup
		var r backup.Restored
		err = asOwner(func() (err error) {
			r, err = backup.Restore(ctx, target, o)
			return err
		}, o.Dir, o.IndexDir)
		bar.close()
		if err != nil {
			return err
		}
		const next = "next: start the node. In a running cluster it fetches the data that it lacks; if no member is left, run annals cluster recover on the node with the newest data"
		if asJSON {
			return printJSON(stdout, struct {
				backup.Restored
				Next string `json:"next"`
			}{r, next})
		}
		var b strings.Builder
		fmt.Fprintf(&b, "restored backup %s to %s: up to position %d, written until %s, %s in %d files\n", r.ID, r.Dir, r.Position, r.Time.UTC().Format(time.RFC3339Nano), humanBytes(r.Bytes), r.Files)
		if r.LeftOut > 0 {
			fmt.Fprintf(&b, "left out: %s of the log after position %d\n", humanBytes(r.LeftOut), r.Position)
		}
		fmt.Fprintln(&b, next)
		_, err = io.WriteString(stdout, b.String())
		return err
	})
	flags := cmd.Flags()
	flags.StringVar(&o.ID, "id", "", "which backup (default the newest)")
	flags.StringVar(&at, "at", "", "restore the writes until this time, as in 2026-01-31T12:00:00Z")
	flags.Int64Var(&position, "to-position", -1, "restore the log up to a position")
	flags.StringVar(&o.Dir, "db", "", "data folder to make")
	flags.StringVar(&o.IndexDir, "index", "", "index folder to make (default in the data folder)")
	return cmd
}

func backupPrune(stdout io.Writer) *cobra.Command {
	var keep, days int
	var dryRun bool
	confirm := atTerminal(os.Stderr)
	cmd := backupReader("prune --from destination (--keep n | --keep-days d)", "Remove older backups", `Remove all but the newest backups, or those that are older than some days. The newest
always stays, and so does every file that a remaining backup needs. Files of backups that
were interrupted are removed when they are a day old.`, func(ctx context.Context, target backup.Target, asJSON bool) error {
		switch {
		case (keep >= 0) == (days >= 0):
			return cannot(errors.New("one of --keep and --keep-days is needed"))
		case keep == 0 || days == 0:
			return cannot(errors.New("--keep and --keep-days must be 1 or above"))
		}
		if !dryRun {
			if err := confirm.given("This removes older backups for ever"); err != nil {
				return err
			}
		}
		done, err := backup.Prune(ctx, target, max(keep, 0), time.Duration(max(days, 0))*24*time.Hour, time.Now(), dryRun)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(stdout, done)
		}
		what := "removed"
		if dryRun {
			what = "would remove"
		}
		_, err = fmt.Fprintf(stdout, "%s %s, %s\n", what, counted(len(done.Removed), "backup"), humanBytes(done.BytesFreed))
		for _, id := range done.Removed {
			_, e := fmt.Fprintln(stdout, id)
			err = errors.Join(err, e)
		}
		return err
	})
	flags := cmd.Flags()
	flags.IntVar(&keep, "keep", -1, "how many backups stay")
	flags.IntVar(&days, "keep-days", -1, "how many days backups stay")
	flags.BoolVar(&dryRun, "dry-run", false, "say what would be removed")
	confirm.add(flags)
	return cmd
}

// drawEvery bounds how often a bar is drawn.
const drawEvery = 100 * time.Millisecond

// bytesBar shows the progress of a copy: a bar on a terminal, else a line now and then.
type bytesBar struct {
	w     io.Writer
	bar   *bar // nil: lines
	phase string
	told  time.Time
}

func newBytesBar(w io.Writer) *bytesBar {
	b := &bytesBar{w: w, told: time.Now()}
	if terminalColumns(w) >= barColumns {
		b.bar = &bar{w: w, columns: terminalColumns(w)}
	}
	return b
}

func (b *bytesBar) backup(p backup.Progress) {
	if b.bar != nil {
		if p.Phase == b.phase && time.Since(b.told) < drawEvery {
			return
		}
		b.phase, b.told = p.Phase, time.Now()
		// It is never full: more phases come, and close takes it away.
		b.bar.size = max(p.Total, p.Done) + 1
		b.bar.draw(p.Done, fmt.Sprintf("%s: %s of %s", p.Phase, humanBytes(p.Done), humanBytes(p.Total)))
		return
	}
	if time.Since(b.told) < progressLineEvery {
		return
	}
	b.told = time.Now()
	// Standard error is closed.
	_, _ = fmt.Fprintf(b.w, "%s: %s of %s\n", strings.ToLower(p.Phase), humanBytes(p.Done), humanBytes(p.Total))
}

func (b *bytesBar) close() {
	if b.bar != nil {
		b.bar.clear()
	}
}
