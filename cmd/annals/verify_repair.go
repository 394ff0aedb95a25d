package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/admin/verify"
)

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
