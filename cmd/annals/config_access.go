package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/owner"
	"github.com/annalsdb/annals/node"
)

// tryBackups makes and removes a file where a node keeps its backups. A node without such a folder
// serves, but it backs nothing up.
func tryBackups(c *config.Config) error {
	dir := node.BackupFolder(c)
	if dir == "" {
		return nil
	}
	above, _, err := owner.Above(dir)
	if isDir := filepath.Clean(dir) == above; err == nil && !isDir {
		err = owner.MayWrite(above) // Nothing is made in a folder that is not for backups.
	} else if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(above, ".annals-*.tmp"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if errors.Is(err, syscall.EROFS) {
		err = fmt.Errorf("%w (under systemd, add ReadWritePaths=%s by systemctl edit annals)", err, dir)
	}
	if err != nil {
		err = c.Located(fmt.Errorf("option BackupTo: no backup can be written: %w", owner.Explain(err, dir)))
	}
	return err
}

// serviceDoubts are what root may do and the owner of the data folder, as whom the service runs,
// may not. For another user than root there are none: that user has tried it.
func serviceDoubts(c *config.Config) (lines []string) {
	info, err := os.Stat(c.Db)
	if err != nil || c.MemDb || os.Geteuid() != 0 {
		return nil
	}
	service, known := owner.Of(info)
	if !known || service.User == 0 {
		return nil
	}
	seen := map[string]bool{}
	check := func(path, may string, rights fs.FileMode) {
		why := owner.Refused(path, service, rights)
		if path == "" || why == "" || seen[why] {
			return
		}
		seen[why] = true
		name := owner.UserName(service.User)
		lines = append(lines, fmt.Sprintf("checked as root; the service runs as %s, who may not %s %s: %s", name, may, path, why))
	}
	read := func(path string) { check(path, "read", owner.Read) }
	read(c.File())
	if !c.Insecure {
		read(c.CertificateFile)
		read(c.CertificatePrivateKeyFile)
		if roots := c.TrustedRootCertificatesPath; c.CertificateFile != "" && roots != "" {
			check(roots, "list", owner.Read|owner.Enter)
			files, _ := os.ReadDir(roots) // The check before has told that it cannot be read.
			for _, f := range files {
				if !f.IsDir() {
					read(filepath.Join(roots, f.Name()))
				}
			}
		}
	}
	folders := []string{c.Db, c.Index, node.BackupFolder(c)}
	if !c.DisableLogFile {
		folders = append(folders, c.Log)
	}
	for _, dir := range folders {
		if dir == "" {
			continue
		}
		if above, _, err := owner.Above(dir); err == nil {
			check(above, "write to", owner.Write|owner.Enter)
		}
	}
	return lines
}
