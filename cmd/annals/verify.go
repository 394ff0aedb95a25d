package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/admin/verify"
)

const verifyHelp = `Check the data folder of a node that is not running: every checksum of the log and the
index, the order of frames, the chain over the whole log, the event numbers of every
stream, and that log and index name the same events. Nothing is changed, even on a
read-only volume. The folder raft is not checked.

Every finding is one line on standard output, in the order of the log:

  error checksum data/chunk-000002.000000 offset 4711 position 536875415: ...

An error means that the files differ from what the node wrote. A notice is something that
the next start repairs, such as an incomplete frame after the last valid one.

With --repair-from the command first fetches complete chunks that are damaged or missing
from a running node, by its backup sessions. Each must end as the damaged one does. Events
that this node redacted are blanked in it. If records came back, the next start builds the
index again. The active chunk is left to the leader. Each file is one line, before those of
the check:

  repaired chunk-000002.000000 as chunk-000002.000001: ...

Exit codes: 0 no errors, 1 errors found, 2 the folder cannot be verified: bad arguments, no
such folder, a newer format, a node has it open, or the node to repair from does not answer
or does not permit it.`

// Exit codes of verify.
const (
	exitProblems     = 1
	exitCannotBeTold = 2
)

const progressLineEvery = 2 * time.Second

// codedError ends the program with an exit code of its own. Without an error
// inside, everything was printed before.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codedError) Unwrap() error { return e.err }

// exitCode prints an error, unless it was printed before, and returns its exit code.
func exitCode(stderr io.Writer, err error) int {
	code := 1
	if coded, ok := errors.AsType[*codedError](err); ok {
		if coded.err == nil {
			return coded.code
		}
		code = coded.code
	}
	complain(stderr, err)
	return code
}

// cannot gives an error the exit code of work that could not be tried, such as bad usage.
func cannot(err error) error { return &codedError{code: exitCannotBeTold, err: err} }

type verifyFlags struct {
	verify.Options
	json, force bool
	repair      repairFlags
}

func verifyCommand(stdout, stderr io.Writer) *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify --db folder",
		Short: "Check a data folder that no node has open",
		Long:  verifyHelp,
		Args:  cobra.NoArgs,
		RunE: untilInterrupted(func(ctx context.Context) error {
			clean, err := f.run(ctx, stdout, stderr)
			switch {
			case err != nil:
				return cannot(err)
			case !clean:
				return &codedError{code: exitProblems}
			}
			return nil
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Dir, "db", "./data", "data folder")
	flags.StringVar(&f.IndexDir, "index", "", "folder of the index (default <db>/index)")
	flags.BoolVar(&f.json, "json", false, "print one JSON document at the end in place of lines")
	flags.BoolVar(&f.Quick, "quick", false, "when log and index differ, do not say where")
	flags.BoolVar(&f.force, "force", false, "verify even if a node has the folder open: its writes meanwhile are reported as damage")
	f.repair.add(flags)
	return cmd
}

func (f *verifyFlags) run(ctx context.Context, stdout, stderr io.Writer) (clean bool, err error) {
	dirs := []string{f.Dir}
	if f.IndexDir != "" {
		dirs = append(dirs, f.IndexDir)
	}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err != nil {
			return false, err
		} else if !info.IsDir() {
			return false, fmt.Errorf("%s is not a folder", dir)
		}
	}
	var repaired []verify.Repaired
	if f.repair.from != "" {
		if repaired, err = f.repaired(ctx, stdout); err != nil {
			return false, err
		}
	}
	hold, err := verify.Hold(f.Dir)
	switch {
	case err == nil:
		defer func() { err = errors.Join(err, hold.Close()) }()
	case !f.force:
		if errors.Is(err, verify.ErrLocked) {
			err = fmt.Errorf("%w (stop it first, or see --force)", err)
		}
		return false, err
	default:
		complain(stderr, fmt.Errorf("verifying anyway: %w", err))
	}

	var printErr error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.OnFinding = func(finding verify.Finding) {
		if f.json || printErr != nil {
			return
		}
		if _, printErr = fmt.Fprintln(stdout, verify.Line(finding)); printErr != nil {
			cancel()
		}
	}
	f.Progress = progressLines(stderr, time.Now)
	report, err := verify.Run(ctx, f.Options)
	report.Repaired = repaired
	switch {
	case printErr != nil:
		return false, printErr
	case errors.Is(err, context.Canceled):
		return false, errors.New("interrupted before everything was read")
	case err != nil:
		return false, err
	}
	if f.json {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = e.Encode(report)
	} else {
		_, err = io.WriteString(stdout, report.Text())
	}
	return report.Clean(), err
}

// progressLines returns a function that prints a line now and then.
func progressLines(stderr io.Writer, clock func() time.Time) func(verify.Progress) {
	last := clock()
	return func(p verify.Progress) {
		now := clock()
		if now.Sub(last) < progressLineEvery {
			return
		}
		last = now
		percent := 100.0
		if p.Total > 0 {
			percent = 100 * float64(p.Done) / float64(p.Total)
		}
		// An error of a progress line does not stop the command.
		_, _ = fmt.Fprintf(stderr, "annals: verifying the %s: %.1f %%, %d records\n", p.Phase, percent, p.Records)
	}
}

// repairFlags name the node from which the log of a stopped one is repaired, and how to ask it.
type repairFlags struct {
	clusterFlags
	from string
}

func (f *repairFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.from, "repair-from", "", "address of a running node of the cluster: fetch damaged and missing complete chunks from it first")
	flags.StringVar(&f.user, "user", "admin", "user to log in as on that node, if there is a password")
	flags.StringVar(&f.password, "password", "", "password for that node (default $"+passwordVariable+"); without one, no credentials are sent")
	flags.BoolVar(&f.skipVerify, "insecure-skip-verify", false, "accept any certificate of that node")
	f.timeout = 2 * time.Minute // A session begins with a sync.
	flags.StringVar(&f.ca, "ca", "", "folder with the certificates of trusted authorities (default those of the system)")
}

// repaired replaces what is damaged and prints a line for each file.
func (f *verifyFlags) repaired(ctx context.Context, stdout io.Writer) (list []verify.Repaired, err error) {
	c, err := f.repair.connect(f.repair.from)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	err = asOwner(func() (err error) {
		list, err = verify.Repair(ctx, verify.RepairOptions{Dir: f.Dir, IndexDir: f.IndexDir, Source: &nodeSource{nodeClient: c}})
		return err
	}, f.Dir, f.IndexDir)
	for _, one := range list {
		if f.json {
			break
		}
		if _, err := fmt.Fprintln(stdout, verify.RepairLine(one)); err != nil {
			return list, err
		}
	}
	if err != nil {
		err = fmt.Errorf("repair from %s: %w", f.repair.from, err)
	}
	return list, err
}
