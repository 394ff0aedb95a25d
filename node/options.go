package node

import (
	"cmp"
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/network"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/stats"
)

// Options of a node. Config is needed; the rest has defaults.
type Options struct {
	Config  *config.Config
	Logger  hclog.Logger // default: none
	Version string       // of the product, for /info

	// OnFatal gets, once, an error after which nothing more may be
	// acknowledged: a failed write or sync. It should end the process. The default panics.
	OnFatal func(error)

	// FS is where everything lies that the node keeps; default: the real one, or memory with MemDb.
	// The local socket and the certificate of a node for development are on the real one only, and
	// left out with another.
	FS vfs.FS

	// Network is what the node listens and dials by, whatever for; default: TCP. With another one
	// the node has no local socket.
	Network network.Network

	// CertificateFS is where the files are that Config names for certificates; default: the real
	// one.
	CertificateFS vfs.FS
	// Certificates, when given, are used in place of the files that Config names.
	Certificates *certs.Set
	Stats        *stats.Registry // where metrics are registered; default: one of the node's own

	// LinesDropped is how many log lines were dropped because their destination did not accept
	// them. Default: none ever.
	LinesDropped func() uint64

	// Reload reads the configuration again when a client asks for it and applies the options that
	// may change while a node runs. It logs the result itself. Default: nothing is read.
	Reload func()
	// UIDir is a folder that the web interface is served from, as it is at each request.
	// Default: what is built in.
	UIDir string
	// Settings returns the options in force, for /info/options. Default: those of Config.
	Settings func() []config.Value

	// Seeds, when given, is asked for the gossip addresses of other nodes in place of
	// what Config says.
	Seeds func(context.Context) ([]string, error)

	// PasswordIterations is the cost of hashing a password, default as package access says.
	PasswordIterations int
	// ClosePatience is how long Close waits, once a disk hangs; default 25 s, as long as a replica
	// may take to close.
	ClosePatience time.Duration
	// Now is the clock of this node's machine, by which events are written, ages and certificates
	// are judged and schedules are kept; default time.Now. It may be wrong, and it may be set while
	// the node runs. What merely takes time is measured without it.
	Now func() time.Time
	// SnapshotEntries and TrailingEntries are those of replication.Options.
	SnapshotEntries uint64
	TrailingEntries int
	// DiskReserve is how many free bytes the node keeps on its volume by refusing writes; default
	// 128 MiB.
	DiskReserve int64
}

// EnsureDefaults sets the fields that are zero to their defaults.
func (o *Options) EnsureDefaults() {
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
	if o.OnFatal == nil {
		o.OnFatal = func(err error) { panic(err) }
	}
	if o.FS == nil {
		o.FS = vfs.OS
		if o.Config.MemDb {
			o.FS = vfs.NewMem()
		}
	}
	o.Stats = cmp.Or(o.Stats, new(stats.Registry))
	if o.Settings == nil {
		o.Settings = o.Config.Values
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.ClosePatience = cmp.Or(o.ClosePatience, 25*time.Second)
	o.DiskReserve = cmp.Or(o.DiskReserve, 128<<20)
}
