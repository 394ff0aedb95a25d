package config

import (
	"maps"
	"net/netip"
	"path/filepath"
	"time"
)

// DefaultRaftLogStore is the log store of a node whose options name none.
const DefaultRaftLogStore = LogStoreWal

// MaxAppendSizeLimit is the largest MaxAppendSize: the largest record less what
// surrounds its data.
const MaxAppendSizeLimit = 16<<20 - 10_000

// Config holds the effective value of every option that the product acts on. Its
// fields are named as the options are; only a field of type time.Duration leaves
// out the unit (Ms, Sec) that the option's name carries. Load fills it, Default
// gives one for tests and embedding. Nobody changes a Config once a node runs by it.
type Config struct {
	// Help, Version and WhatIf ask for a text instead of a node.
	Help    bool
	Version bool
	WhatIf  bool
	// Config names the YAML file. File tells which one was read, if any.
	Config string
	// AllowUnknownOptions turns unknown options into warnings.
	AllowUnknownOptions bool
	// DisableHttpCaching makes every answer say that it must not be cached.
	DisableHttpCaching bool
	// StatsPeriod is the time between two statistics events.
	StatsPeriod time.Duration
	// EnableHistograms serves /histogram.
	EnableHistograms bool
	// LogHttpRequests logs every request when it is answered.
	LogHttpRequests bool
	// LogFailedAuthenticationAttempts logs who was refused with wrong credentials.
	LogFailedAuthenticationAttempts bool
	// MaxAppendSize bounds the bytes of all events of one append, when it is set: see AppendLimit.
	MaxAppendSize int64
	// Insecure switches TLS, authentication and authorisation off.
	Insecure bool
	// DisableHttps serves plain HTTP with authentication on any address, behind a proxy that does TLS.
	DisableHttps bool
	// AllowAnonymousEndpointAccess opens /stats and the like to callers without credentials.
	AllowAnonymousEndpointAccess bool
	// AllowAnonymousStreamAccess lets the access list judge callers without credentials; else they are refused.
	AllowAnonymousStreamAccess bool
	// OverrideAnonymousEndpointAccessForGossip opens /gossip whatever AllowAnonymousEndpointAccess says.
	OverrideAnonymousEndpointAccessForGossip bool
	// ReferenceStatusCodes answers with the reference's status codes where ours differ.
	ReferenceStatusCodes bool
	// FollowerWrites is what a follower does with a request that needs the leader.
	FollowerWrites FollowerWriteMode

	// Dev makes a node for development, which needs no certificate: see SelfMadeCertificate.
	Dev bool

	// DefaultAdminPassword and DefaultOpsPassword are given to the built-in accounts when these are created.
	DefaultAdminPassword string
	DefaultOpsPassword   string

	// Log is the folder of the log files; empty: log lines go to standard error only.
	Log string
	// LogLevel is the least severity logged.
	LogLevel LogLevel
	// LogConsoleFormat is the form of the lines on standard error and in log files.
	LogConsoleFormat LogFormat
	// LogFileSize is the size at which a new log file is begun.
	LogFileSize int64
	// LogFileInterval is how often a new log file is begun.
	LogFileInterval LogInterval
	// LogFileRetentionCount is how many finished log files are kept.
	LogFileRetentionCount int
	// DisableLogFile keeps log lines off the disk even when Log is set.
	DisableLogFile bool

	// CertificateReservedNodeCommonName is the pattern that the name of a node's certificate matches.
	CertificateReservedNodeCommonName string
	// TrustedRootCertificatesPath is the folder of the trusted root certificates.
	TrustedRootCertificatesPath string
	// CertificateFile is a PKCS#12 bundle or an X.509 certificate in PEM or DER form.
	CertificateFile string
	// CertificatePrivateKeyFile is the key of an X.509 certificate.
	CertificatePrivateKeyFile string
	// CertificatePassword opens a PKCS#12 bundle.
	CertificatePassword string
	// CertificatePrivateKeyPassword opens an encrypted key file.
	CertificatePrivateKeyPassword string

	// ClusterSize is the number of voting nodes.
	ClusterSize int
	// NodePriority makes this node stand earlier in elections when higher.
	NodePriority int
	// ReadOnlyReplica makes this node receive the log without vote.
	ReadOnlyReplica bool
	// DiscoverViaDns finds the other nodes by the name ClusterDns instead of GossipSeed.
	DiscoverViaDns bool
	ClusterDns     string
	// GossipSeed lists host:port of other nodes.
	GossipSeed []string
	// ClusterGossipPort is the port at which nodes found by DNS gossip.
	ClusterGossipPort int
	// GossipPort is the port of gossip on ReplicationIp, TCP and UDP.
	GossipPort int
	// GossipPortAdvertiseAs is what other nodes are told instead of GossipPort; 0: GossipPort.
	GossipPortAdvertiseAs int
	// CatchUpThrottleMiB bounds, in MiB a second, what a node that lags fetches while
	// the cluster is being written to; 0: no bound.
	CatchUpThrottleMiB int
	// GossipInterval and GossipTimeout pace the gossip between nodes.
	GossipInterval time.Duration
	GossipTimeout  time.Duration
	// DeadMemberRemovalPeriod is how long a dead node stays visible in gossip.
	DeadMemberRemovalPeriod time.Duration
	// LeaderElectionTimeout is how long a follower waits for a sign of its leader.
	LeaderElectionTimeout time.Duration
	// DiskHangTimeout is how long one operation on the disk may take before the node takes no part
	// in its cluster; 0: follows from LeaderElectionTimeout.
	DiskHangTimeout time.Duration
	// ClockTolerance is how far the node's clock may be from those of most members, or behind the log; 0: any clock is right.
	ClockTolerance time.Duration
	// UnsafeAllowSurplusNodes lets more nodes join than ClusterSize says.
	UnsafeAllowSurplusNodes bool
	// StreamInfoCacheCapacity is the number of streams whose facts are cached; 0: chosen by the node.
	StreamInfoCacheCapacity int
	// RaftLogStore is the library that keeps the Raft log.
	RaftLogStore LogStore

	// Db is the data folder.
	Db string
	// Index is the folder of the index. After Load it is never empty: the default is the folder index in Db.
	Index string
	// MemDb keeps everything in memory; no file is made.
	MemDb bool
	// PrepareTimeout and CommitTimeout together are how long a write may take before its client is told.
	PrepareTimeout time.Duration
	CommitTimeout  time.Duration
	// WriteTimeout bounds the node's own writes, such as statistics and scavenge history.
	WriteTimeout time.Duration
	// MaxTruncation is how many bytes truncate.chk may cut at start; -1: any.
	MaxTruncation int64
	// DisableScavengeMerging leaves small chunks as they are after a scavenge.
	DisableScavengeMerging bool
	// ScavengeHistoryMaxAge is how long the history of scavenges is kept.
	ScavengeHistoryMaxAge time.Duration
	// ScavengeBackendPageSize and ScavengeBackendCacheSize shape the scavenge database, in bytes.
	ScavengeBackendPageSize  int
	ScavengeBackendCacheSize int64
	// ScavengeSchedule is the cron expression by which the cluster scavenges; empty: it does not by itself.
	ScavengeSchedule string
	// ScavengeScheduleThreshold and ScavengeScheduleThrottle are those of such scavenges, the latter in percent.
	ScavengeScheduleThreshold int
	ScavengeScheduleThrottle  int
	// BackupTo is where the node backs itself up to: a folder or s3://bucket/prefix; empty: nowhere.
	BackupTo string
	// BackupS3Endpoint is the URL of the object store; empty: that of the region.
	BackupS3Endpoint string
	// BackupSchedule is the cron expression by which the node backs itself up; empty: only when asked to.
	BackupSchedule string
	// BackupKeep is how many backups stay; 0: all.
	BackupKeep int
	// BackupThrottleMiB is how many MiB a second a backup reads at most; 0: no limit.
	BackupThrottleMiB int
	// BackupVerify reads back what a backup has written.
	BackupVerify bool
	// SkipDbVerify and SkipIndexVerify leave out the checksums of chunks and index tables at start.
	SkipDbVerify    bool
	SkipIndexVerify bool
	// ChunkCheckDays is after how many days all complete chunks are compared with their checksums again; 0: only at start.
	ChunkCheckDays int
	// MaxMemTableSize is the number of index entries held in memory before a table is written.
	MaxMemTableSize int
	// MaxAutoMergeIndexLevel is the highest level of index tables merged without being asked to.
	MaxAutoMergeIndexLevel int
	// UseIndexBloomFilters writes a bloom filter beside each index table.
	UseIndexBloomFilters bool
	// StreamExistenceFilterSize is the size in bytes of the filter of known streams; 0: none.
	StreamExistenceFilterSize int64
	// UnsafeDisableFlushToDisk leaves out every fsync.
	UnsafeDisableFlushToDisk bool
	// WriteStatsToDb writes statistics events into the database.
	WriteStatsToDb bool

	// NodeIp and NodePort are where HTTP is served. Port 0 takes a free one.
	NodeIp   netip.Addr
	NodePort int
	// ReplicationIp and ReplicationPort are where the other nodes connect to.
	ReplicationIp   netip.Addr
	ReplicationPort int
	// The addresses told to nodes and clients instead of the ones listened on; empty and 0: the latter.
	NodeHostAdvertiseAs           string
	NodePortAdvertiseAs           int
	ReplicationHostAdvertiseAs    string
	ReplicationTcpPortAdvertiseAs int
	AdvertiseHostToClientAs       string
	AdvertiseNodePortToClientAs   int
	// EnableUnixSocket offers redaction at a local socket, eventstore.sock, in the data folder.
	EnableUnixSocket bool
	// DisableAdminUi, DisableStatsOnHttp and DisableGossipOnHttp remove those routes.
	DisableAdminUi      bool
	DisableStatsOnHttp  bool
	DisableGossipOnHttp bool
	// EnableAtomPubOverHttp serves /streams.
	EnableAtomPubOverHttp bool
	// EnableTrustedAuth believes the header ES-TrustedAuth of an intermediary.
	EnableTrustedAuth bool

	// RunProjections says which projections run.
	RunProjections ProjectionMode
	// StartStandardProjections enables the system projections at start.
	StartStandardProjections bool
	// ProjectionThreads is how many projections are worked on at once.
	ProjectionThreads int
	// ProjectionsQueryExpiry is how long an unused transient query lives.
	ProjectionsQueryExpiry time.Duration
	// FaultOutOfOrderProjections faults a projection that meets an unexpected event number.
	FaultOutOfOrderProjections bool
	// ProjectionCompilationTimeout and ProjectionExecutionTimeout bound one compilation and one handler call.
	ProjectionCompilationTimeout time.Duration
	ProjectionExecutionTimeout   time.Duration
	// MaxProjectionStateSize bounds the bytes of a projection's state and its result, of each partition alone.
	MaxProjectionStateSize int64

	// given holds, by option name, what the strongest source said. Options not in it have their default.
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

// Reloaded returns the configuration of a node that runs by c and has read next:
// what may change meanwhile is as next has it. A level of Default leaves the level as it
// is, and the certificates are those of next if the node has taken them over.
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

// File names the YAML file that was read; it is empty if there was none.
func (c *Config) File() string { return c.file }

// Warnings returns the lines that an operator should see at start: deprecated
// names, options without effect and, where they are allowed, unknown options.
func (c *Config) Warnings() []string { return c.warnings }

// ListenAddr returns NodeIp and NodePort as one address to listen on.
func (c *Config) ListenAddr() string {
	return netip.AddrPortFrom(c.NodeIp, uint16(c.NodePort)).String()
}

// Secured says whether connections of nodes and clients are made with certificates.
func (c *Config) Secured() bool { return !c.Insecure && (c.hasCertificate() || c.Dev) }

// SelfMadeCertificate says whether the node makes its own certificate, for
// localhost, because it runs for development and none is configured.
func (c *Config) SelfMadeCertificate() bool { return c.Dev && !c.Insecure && !c.hasCertificate() }

// AppendLimit returns how many bytes the events of one append may have together,
// or 0 when the operator set no limit. The option's default is that of the
// reference, which bounds only gRPC by it: over HTTP it would refuse events that
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

// DNSGossipPort is the port of gossip of nodes that are found by DNS.
func (c *Config) DNSGossipPort() int {
	if c.Given("ClusterGossipPort") {
		return c.ClusterGossipPort
	}
	return c.GossipPort
}

// hasCertificate says whether the operator named a certificate.
func (c *Config) hasCertificate() bool { return c.CertificateFile != "" }

// Given says whether any source named the option.
func (c *Config) Given(name string) bool {
	_, ok := c.given[name]
	return ok
}
