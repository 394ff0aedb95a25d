package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/vfs"
)

// Check returns the mistakes in a loaded configuration for which a start would fail: certificates,
// folders and the place of backups. It changes nothing. Only the start itself finds out that
// another process has the data folder open, that a port is taken, or that data are damaged.
func Check(c *config.Config) (problems []error) {
	add := func(option string, err error) {
		if err != nil {
			problems = append(problems, c.Located(fmt.Errorf("option %s: %w", option, err)))
		}
	}
	n := &Node{config: c, logger: hclog.NewNullLogger()}
	if c.CertificateFile != "" && !c.Insecure {
		_, err := certs.Load(certificatesOf(n).files(c))
		if refused, ok := errors.AsType[*certs.LoadError](err); ok {
			for _, f := range refused.Findings {
				add(certificateOption(c, f.File), errors.New(f.String()))
			}
		} else {
			add("CertificateFile", err)
		}
	}
	root, err := openWebDir(c.WebDir)
	if err == nil && root != nil {
		err = root.Close()
	}
	if err != nil {
		problems = append(problems, c.Located(err))
	}
	if c.BackupTo != "" && !c.MemDb {
		_, err := n.backupTarget()
		add("BackupTo", err)
	}
	if !c.MemDb {
		add("Db", folderOrNothing(c.Db))
		if c.Given("Index") {
			add("Index", folderOrNothing(c.Index))
		}
	}
	if c.Log != "" && !c.DisableLogFile {
		add("Log", folderOrNothing(c.Log))
	}
	return problems
}

// certificateOption is the option that names a file, or the folder in which it is.
func certificateOption(c *config.Config, file string) string {
	switch roots := c.TrustedRootCertificatesPath; {
	case file == "" || file == c.CertificateFile:
	case file == c.CertificatePrivateKeyFile:
		return "CertificatePrivateKeyFile"
	case roots != "" && (file == roots || filepath.Dir(file) == filepath.Clean(roots)):
		return "TrustedRootCertificatesPath"
	}
	return "CertificateFile"
}

// folderOrNothing refuses a path at which there is another thing than a folder.
func folderOrNothing(path string) error {
	switch info, err := vfs.OS.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", path)
	}
	return nil
}
