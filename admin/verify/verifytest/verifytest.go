// Package verifytest lets tests verify the folders of the databases that they opened.
package verifytest

import (
	"context"
	"testing"

	"github.com/annalsdb/annals/admin/verify"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/inspect"
)

// Check fails a test for every problem of a data folder that no process has open any more.
// indexDir may be empty for the usual place. Notices are logged.
func Check(t testing.TB, fsys vfs.FS, dir, indexDir string) {
	t.Helper()
	report, err := verify.Run(context.Background(), verify.Options{Options: inspect.Options{FS: fsys, Dir: dir, IndexDir: indexDir}})
	if err != nil {
		t.Errorf("verify: %v", err)
		return
	}
	for _, f := range report.Findings {
		if f.Severity == "notice" {
			t.Logf("%s", verify.Line(f))
			continue
		}
		t.Errorf("%s", verify.Line(f))
	}
	if report.Omitted > 0 {
		t.Errorf("%d more findings", report.Omitted)
	}
}
