package replication

import (
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/replication/bootstrap"
	"github.com/annalsdb/annals/replication/raftdisk"
)

// A process made the folder for the promises of a node, and was killed before it could sync the
// name. What the next process promises in it is there after a power cut.
func TestPromiseInAFolderThatIsNotSynced(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashMem()
	folder := filepath.Join("/data", raftdisk.Dir)
	check.Must(t, vfs.MkdirAllSync(mem, "/data"))
	check.Must(t, mem.MkdirAll(folder))
	l := &lifecycle{peers: &peers{}, self: &self{logger: hclog.NewNullLogger(), opts: ClusterOptions{
		Size: 3, Replica: Options{Options: raftdisk.Options{Dir: "/data", Files: mem}}, HasLog: func() (bool, error) { return false, nil },
	}}}
	check.Must(t, check.Err(l.settle()))
	cut := bootstrap.FileStore(mem.CrashClone(vfs.CrashOptions{}), filepath.Join(folder, raftdisk.PromiseFile))
	check.Equal(t, check.Value(cut.Load()).Must(t).Node, l.self.node, "node")
}
