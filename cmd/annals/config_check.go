package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/owner"
	"github.com/annalsdb/annals/node"
)

const configCheckHelp = `Find every mistake for which a node would refuse to start: unknown options, wrong values,
options that exclude each other, schedules, certificates and folders. Each mistake is a
line with the file and line, or the variable, where it was set. A node may run meanwhile.
Nothing is changed: in the folder of BackupTo a file is made and removed again.

A warning keeps no node from starting. As root, the command also warns of files that the
owner of the data folder may not read or write: the service runs as that user.

The options are those of annals node, as the node is started with. The command reads the
same environment and the same configuration file. Only the start itself finds out that a
port is taken, that another node has the data folder open, or that data are damaged.

Exit codes: 0 a node would start, 2 it would refuse to.`

func configCommand(stdout io.Writer) *cobra.Command {
	return group("config", "Check the configuration of a node", "", configCheckCommand(stdout))
}

func configCheckCommand(stdout io.Writer) *cobra.Command {
	cmd := onOptions("check [options of annals node]", "Find all mistakes for which a node would refuse to start", configCheckHelp, func(args []string) error {
		return checkConfig(args, os.Environ(), os.ReadFile, stdout)
	})
	cmd.Example = "  annals config check\n  annals config check --config /etc/annals/annals.conf"
	return cmd
}

func checkConfig(args, environ []string, readFile func(string) ([]byte, error), stdout io.Writer) error {
	c, err := config.Load(args, environ, readFile)
	if err != nil {
		return cannot(err)
	}
	if err := errors.Join(append(node.Check(c), checkSchedules(c))...); err != nil {
		return cannot(err)
	}
	warnings := append(c.Warnings(), serviceDoubts(c)...)
	if err := tryBackups(c); err != nil {
		warnings = append(warnings, err.Error())
	}
	for _, line := range warnings {
		if _, err := fmt.Fprintf(stdout, "warning: %s\n", line); err != nil {
			return err
		}
	}
	from := "no configuration file was read"
	if c.File() != "" {
		from = c.File() + " was read"
	}
	_, err = fmt.Fprintf(stdout, "the configuration is correct (%s)\n", from)
	return err
}

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
