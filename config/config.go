package config

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// DefaultRaftLogStore is the log store of a node whose options name none.
const DefaultRaftLogStore = LogStoreWal

// MaxAppendSizeLimit is the largest MaxAppendSize: the largest record less what
// surrounds its data.
const MaxAppendSizeLimit = 16<<20 - 10_000

// Config holds the effective value of every option that the product acts on. Its
// fields are named as the options are; only a field of type time.Duration leaves
// out the unit (Ms, Sec) that the option's name carries. The table in table.go says what
// each is for; comments here say what it does not. Load fills it, Default
// gives one for tests and embedding. A Config never changes once a node runs by it.
type Config struct {
	Help                            bool
	Version                         bool
	WhatIf                          bool
	Config                          string
	AllowUnknownOptions             bool
	DisableHttpCaching              bool
	StatsPeriod                     time.Duration
	EnableHistograms                bool
	KurrentMetrics                  bool
	LogHttpRequests                 bool
	LogFailedAuthenticationAttempts bool
	// MaxAppendSize bounds the bytes of all events of one append, when it is set: see AppendLimit.
	MaxAppendSize                            int64
	Insecure                                 bool
	DisableHttps                             bool
	AllowAnonymousEndpointAccess             bool
	AllowAnonymousStreamAccess               bool
	OverrideAnonymousEndpointAccessForGossip bool
	ReferenceStatusCodes                     bool
	FollowerWrites                           FollowerWriteMode

	// Dev makes a node for development, which needs no certificate: see SelfMadeCertificate.
	Dev bool

	DefaultAdminPassword string
	DefaultOpsPassword   string

	// Log is the folder of the log files; empty: log lines go to standard error only.
	Log                   string
	LogLevel              LogLevel
	LogConsoleFormat      LogFormat
	LogFileSize           int64
	LogFileInterval       LogInterval
	LogFileRetentionCount int
	DisableLogFile        bool

	AllowServerOnlyNodeCertificates   bool
	CertificateReservedNodeCommonName string
	TrustedRootCertificatesPath       string
	CertificateFile                   string
	CertificatePrivateKeyFile         string
	CertificatePassword               string
	CertificatePrivateKeyPassword     string

	ClusterSize             int
	NodePriority            int
	ReadOnlyReplica         bool
	DiscoverViaDns          bool
	ClusterDns              string
	GossipSeed              []string
	ClusterGossipPort       int
	GossipPort              int
	CatchUpThrottleMiB      int
	GossipInterval          time.Duration
	GossipTimeout           time.Duration
	DeadMemberRemovalPeriod time.Duration
	LeaderElectionTimeout   time.Duration
	DiskHangTimeout         time.Duration
	ClockTolerance          time.Duration
	UnsafeAllowSurplusNodes bool
	StreamInfoCacheCapacity int
	RaftLogStore            LogStore

	Db string
	// Index is the folder of the index. After Load it is never empty: the default is the folder
	// index in Db.
	Index                    string
	MemDb                    bool
	PrepareTimeout           time.Duration
	CommitTimeout            time.Duration
	WriteTimeout             time.Duration
	MaxTruncation            int64
	DisableScavengeMerging   bool
	ScavengeHistoryMaxAge    time.Duration
	ScavengeBackendPageSize  int
	ScavengeBackendCacheSize int64
	// ScavengeSchedule is the cron expression by which the cluster scavenges; empty: it does not by
	// itself.
	ScavengeSchedule          string
	ScavengeScheduleThreshold int
	ScavengeScheduleThrottle  int
	// BackupTo is where the node backs itself up to: a folder or s3://bucket/prefix; empty:
	// nowhere.
	BackupTo string
	// BackupS3Endpoint is the URL of the object store; empty: that of the region.
	BackupS3Endpoint string
	// BackupSchedule is the cron expression by which the node backs itself up; empty: only when
	// asked to.
	BackupSchedule            string
	BackupKeep                int
	BackupThrottleMiB         int
	BackupVerify              bool
	SkipDbVerify              bool
	SkipIndexVerify           bool // nothing to skip: tables are checked when they are read
	ChunkCheckDays            int
	MaxMemTableSize           int
	PostingsMemory            int
	MaxAutoMergeIndexLevel    int
	UseIndexBloomFilters      bool
	StreamExistenceFilterSize int64
	UnsafeDisableFlushToDisk  bool
	WriteStatsToDb            bool

	NodeIp          netip.Addr
	NodePort        int
	ReplicationIp   netip.Addr
	ReplicationPort int
	// The addresses that nodes and clients use instead of those that the node listens on; empty
	// and 0: the latter.
	NodeHostAdvertiseAs           string
	NodePortAdvertiseAs           int
	ReplicationHostAdvertiseAs    string
	ReplicationTcpPortAdvertiseAs int
	AdvertiseHostToClientAs       string
	AdvertiseNodePortToClientAs   int
	HostNames                     []string
	EnableUnixSocket              bool
	DisableAdminUi                bool
	MaxConnections                int
	MaxLiveConnections            int
	RequestMemoryMiB              int
	KeepAliveInterval             time.Duration
	KeepAliveTimeout              time.Duration
	WebDir                        string
	WebTitle                      string
	WebTone                       WebTone
	DisableStatsOnHttp            bool
	DisableGossipOnHttp           bool
	EnableAtomPubOverHttp         bool
	EnableTrustedAuth             bool

	RunProjections               ProjectionMode
	StartStandardProjections     bool
	ProjectionThreads            int
	ProjectionsQueryExpiry       time.Duration
	FaultOutOfOrderProjections   bool
	ProjectionCompilationTimeout time.Duration
	ProjectionExecutionTimeout   time.Duration
	MaxProjectionStateSize       int64

	// given has, by option name, the setting of the strongest source. Options that are not in it
	// have their default.
	given map[string]setting
	// file is the YAML file that was read, if any.
	file string
	// warnings are the lines to be logged at start.
	warnings []string
}

// Default returns the configuration of a node without any option.
func Default() *Config {
	c := new(Config)
	for _, o := range c.table() {
		if err := o.target.set(o.def); err != nil {
			panic("config: default of " + o.name + ": " + err.Error())
		}
	}
	c.Index = filepath.Join(c.Db, "index")
	return c
}

// Reloaded returns the configuration of a node that runs by c and has read next. The
// options that may change while it runs come from next. The level Default leaves the
// level as it is. The certificates come from next if the node has taken them over.
func (c *Config) Reloaded(next *Config, certificates bool) *Config {
	r := *c
	r.given = maps.Clone(c.given)
	if r.given == nil {
		r.given = map[string]setting{}
	}
	take := func(name string) {
		delete(r.given, name)
		if s, ok := next.given[name]; ok {
			r.given[name] = s
		}
	}
	if next.LogLevel != LogLevelDefault {
		r.LogLevel = next.LogLevel
		take(nameLogLevel)
	}
	if certificates {
		r.CertificateFile, r.CertificatePrivateKeyFile = next.CertificateFile, next.CertificatePrivateKeyFile
		r.CertificatePassword, r.CertificatePrivateKeyPassword = next.CertificatePassword, next.CertificatePrivateKeyPassword
		r.TrustedRootCertificatesPath, r.CertificateReservedNodeCommonName = next.TrustedRootCertificatesPath, next.CertificateReservedNodeCommonName
		for _, name := range namesCertificates {
			take(name)
		}
	}
	return &r
}

// AwaitRestart are the names of the options that differ in next, and that a node which runs by c
// takes over only when it is restarted.
func (c *Config) AwaitRestart(next *Config) (names []string) {
	old, changed := c.table(), next.table()
	for i := range old {
		o := &old[i]
		if o.name == nameLogLevel || slices.Contains(namesCertificates, o.name) || !o.hasEffect() {
			continue
		}
		if c.current(o) != next.current(&changed[i]) {
			names = append(names, o.name)
		}
	}
	return names
}

// File names the YAML file that was read; it is empty if there was none.
func (c *Config) File() string { return c.file }

// Warnings returns the lines that an operator should see at start: deprecated
// names, options without effect and, where they are allowed, unknown options.
func (c *Config) Warnings() []string { return c.warnings }

// ListenAddr returns NodeIp and NodePort as one address to listen on.
func (c *Config) ListenAddr() string {
	return netip.AddrPortFrom(c.NodeIp, uint16(c.NodePort)).String()
}

// Secured says whether nodes and clients connect with TLS.
func (c *Config) Secured() bool { return !c.Insecure && (c.hasCertificate() || c.Dev) }

// SelfMadeCertificate says whether the node makes its own certificate, for
// localhost, because it runs for development and none is configured.
func (c *Config) SelfMadeCertificate() bool { return c.Dev && !c.Insecure && !c.hasCertificate() }

// AppendLimit returns how many bytes the events of one append may have together,
// or 0 when the operator set no limit. The default of the option is that of
// EventStoreDB, which applies it to gRPC only: over HTTP it would refuse events that
// clients may write.
func (c *Config) AppendLimit() int64 {
	if def := Default().MaxAppendSize; c.MaxAppendSize == def && !c.Given("MaxAppendSize") {
		return 0
	}
	return c.MaxAppendSize
}

// ViaDNS says whether the other nodes are found by looking up ClusterDns. Seeds
// that are given win over the default of looking up.
func (c *Config) ViaDNS() bool {
	return c.DiscoverViaDns && (len(c.GossipSeed) == 0 || c.Given("DiscoverViaDns"))
}

// Seeds are the nodes of GossipSeed with their ports between nodes.
func (c *Config) Seeds() []string {
	seeds := make([]string, len(c.GossipSeed))
	for i, seed := range c.GossipSeed {
		seeds[i] = seed
		if host, port, err := net.SplitHostPort(seed); err == nil && port == strconv.Itoa(c.GossipPort) {
			seeds[i] = net.JoinHostPort(host, strconv.Itoa(c.peerPort()))
		}
	}
	return seeds
}

// DNSPort is the port between nodes of the nodes found by DNS.
func (c *Config) DNSPort() int {
	if c.Given("ClusterGossipPort") && c.ClusterGossipPort != c.GossipPort {
		return c.ClusterGossipPort
	}
	return c.peerPort()
}

// peerPort is the port between nodes of nodes that are configured like this one.
func (c *Config) peerPort() int { return cmp.Or(c.ReplicationTcpPortAdvertiseAs, c.ReplicationPort) }

// hasCertificate says whether the operator named a certificate.
func (c *Config) hasCertificate() bool { return c.CertificateFile != "" }

// Where says where an option was set: the file and line, the variable, or the command line. It is
// empty for a default.
func (c *Config) Where(name string) string { return c.given[name].at }

// Given says whether any source named the option.
func (c *Config) Given(name string) bool {
	_, ok := c.given[name]
	return ok
}
