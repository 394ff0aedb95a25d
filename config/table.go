package config

import (
	"math"
	"strings"
	"time"
)

// The groups of options, as /info/options names them.
const (
	groupApplication      = "ApplicationOptions"
	groupDevMode          = "DevModeOptions"
	groupDefaultUser      = "DefaultUserOptions"
	groupLogging          = "LoggingOptions"
	groupAuth             = "AuthOptions"
	groupCertificate      = "CertificateOptions"
	groupCertificateFile  = "CertificateFileOptions"
	groupCertificateStore = "CertificateStoreOptions"
	groupCluster          = "ClusterOptions"
	groupDatabase         = "DatabaseOptions"
	groupGrpc             = "GrpcOptions"
	groupInterface        = "InterfaceOptions"
	groupProjection       = "ProjectionOptions"
)

// The options that may change while a node runs.
const nameLogLevel = "LogLevel"

var namesCertificates = []string{
	"TrustedRootCertificatesPath", "CertificateReservedNodeCommonName", "CertificateFile", "CertificatePrivateKeyFile",
	"CertificatePassword", "CertificatePrivateKeyPassword",
}

// option is one row of the table.
type option struct {
	name  string
	group string
	def   string // a boolean's is written True or False
	// unset says what holds while the option is not set, where that is not its default.
	unset  string
	doc    string
	target target
	// synonyms are former names: accepted, and warned about once.
	synonyms []string
	// deprecated says why an option should not be used any more.
	deprecated string
	// lacks is a clause that names the missing feature that the option needs. Setting the
	// option gives a warning, or ends the start when refused.
	lacks string
	// refused options may only have their default: an operator who asks for more
	// would rely on a feature that is missing.
	refused bool
	// sensitive values are shown as asterisks.
	sensitive bool
	// environmentOnly values do not belong into files and process lists.
	environmentOnly bool
	// notInFile options make no sense within the configuration file.
	notInFile bool
}

// hasEffect says whether the product acts on the option.
func (o *option) hasEffect() bool { return o.target.field != nil }

// description is the doc, and the missing feature if there is one.
func (o *option) description() string {
	switch {
	case o.lacks == "":
		return o.doc
	case !o.refused:
		return o.doc + " No effect yet: " + o.lacks + "."
	case o.def == "":
		return o.doc + " Must not be set: " + o.lacks + "."
	default:
		return o.doc + " Must be " + o.defaultText() + ": " + o.lacks + "."
	}
}

// defaultText is the default as an operator writes it.
func (o *option) defaultText() string {
	if o.target.kind == KindBool {
		return strings.ToLower(o.def)
	}
	return o.def
}

// Clauses that name missing features.
const (
	noLazyWrites = "writing without flushing is not available in this version"
	noStores     = "this system has no certificate stores, CertificateFile names a file"
	noPlugIns    = "authentication and authorisation plug-ins do not exist"
	noEncryption = "files are not encrypted by the server"
)

// table lists every option, bound to the fields of c. Options that only
// EventStoreDB acts on are in ignoredOptions.
func (c *Config) table() []option {
	var t []option
	t = append(t, c.applicationOptions()...)
	t = append(t, c.loggingOptions()...)
	t = append(t, c.certificateOptions()...)
	t = append(t, c.clusterOptions()...)
	t = append(t, c.databaseOptions()...)
	t = append(t, c.scavengeOptions()...)
	t = append(t, c.backupOptions()...)
	t = append(t, c.grpcOptions()...)
	t = append(t, c.interfaceOptions()...)
	t = append(t, c.projectionOptions()...)
	return append(t, ignoredOptions()...)
}

func (c *Config) applicationOptions() []option {
	const g = groupApplication
	return []option{
		{name: "Help", group: g, def: "False", target: boolField(&c.Help), notInFile: true,
			doc: "Print this text and end."},
		{name: "Version", group: g, def: "False", target: boolField(&c.Version), notInFile: true,
			doc: "Print the version and end."},
		{name: "WhatIf", group: g, def: "False", target: boolField(&c.WhatIf), notInFile: true,
			doc: "Print the effective options with their sources and end."},
		{name: "Config", group: g, def: defaultConfigFile, target: textField(&c.Config), notInFile: true,
			doc: "The YAML file with options. When no file is named and this one is missing, the node reads " + referenceConfigFile + " or " + kurrentConfigFile + "."},
		{name: "AllowUnknownOptions", group: g, def: "False", target: boolField(&c.AllowUnknownOptions),
			doc: "Start although options are unknown. The log has a warning for each."},
		{name: "DisableHttpCaching", group: g, def: "False", target: boolField(&c.DisableHttpCaching),
			doc: "Forbid clients and proxies to cache answers."},
		{name: "StatsPeriodSec", group: g, def: "30", target: durationField(&c.StatsPeriod, time.Second, 1),
			doc: "Seconds from one statistics event to the next."},
		{name: "EnableHistograms", group: g, def: "False", target: boolField(&c.EnableHistograms),
			doc: "Serve latency histograms at /histogram."},
		{name: "KurrentMetrics", group: g, def: "False", target: boolField(&c.KurrentMetrics),
			doc: "Serve each metric eventstore_NAME as kurrentdb_NAME as well. For dashboards and alerts of KurrentDB."},
		{name: "LogHttpRequests", group: g, def: "False", target: boolField(&c.LogHttpRequests),
			doc: "Log every HTTP request when it is answered."},
		{name: "LogFailedAuthenticationAttempts", group: g, def: "False", target: boolField(&c.LogFailedAuthenticationAttempts),
			doc: "Log requests with wrong credentials."},
		{name: "MaxAppendSize", group: g, def: "1048576", target: intField(&c.MaxAppendSize, 1, math.MaxInt64),
			doc:   "The largest append in bytes, all its events together. At most 16 MiB less 10000 bytes. /info/options shows 1048576, as EventStoreDB does, while no limit is set.",
			unset: "none: 4 MiB for an event and 16 MiB for an append"},
		{name: "Insecure", group: g, def: "False", target: boolField(&c.Insecure),
			doc: "Switch TLS, authentication and authorisation off. Everyone who reaches the node may do everything. Only pages of other sites in a browser cannot change or read anything: see HostNames."},
		{name: "DisableHttps", group: g, def: "False", target: boolField(&c.DisableHttps),
			doc: "Serve plain HTTP with authentication on any address. For nodes behind a proxy that does TLS."},
		{name: "AllowAnonymousEndpointAccess", group: g, def: "False", target: boolField(&c.AllowAnonymousEndpointAccess),
			doc: "Serve statistics and other information about the node without credentials."},
		{name: "AllowAnonymousStreamAccess", group: g, def: "True", target: boolField(&c.AllowAnonymousStreamAccess),
			doc: "Let the access list of a stream decide about callers without credentials. When false, the node refuses them on every stream."},
		{name: "OverrideAnonymousEndpointAccessForGossip", group: g, def: "True", target: boolField(&c.OverrideAnonymousEndpointAccessForGossip),
			doc: "Serve gossip without credentials, also when AllowAnonymousEndpointAccess is false."},
		{name: "ReferenceStatusCodes", group: g, def: "False", target: boolField(&c.ReferenceStatusCodes),
			doc: "Answer with the status codes of EventStoreDB 23.10 where they differ. For clients that compare the exact code."},

		{name: "Dev", group: groupDevMode, def: "False", target: boolField(&c.Dev),
			doc: "Run for development. Without a configured certificate the node makes one for localhost itself, and serves HTTPS with it. System projections run."},

		{name: "DefaultAdminPassword", group: groupDefaultUser, def: "changeit", target: textField(&c.DefaultAdminPassword),
			sensitive: true, environmentOnly: true,
			doc: "The password that the user admin is created with."},
		{name: "DefaultOpsPassword", group: groupDefaultUser, def: "changeit", target: textField(&c.DefaultOpsPassword),
			sensitive: true, environmentOnly: true,
			doc: "The password that the user ops is created with."},
	}
}

func (c *Config) grpcOptions() []option {
	const g, ms = groupGrpc, time.Millisecond
	return []option{
		{name: "KeepAliveInterval", group: g, def: "10000", target: durationField(&c.KeepAliveInterval, ms, 1),
			doc: "Milliseconds without data from a client after which the node pings it, on connections of HTTP/2."},
		{name: "KeepAliveTimeout", group: g, def: "10000", target: durationField(&c.KeepAliveTimeout, ms, 1),
			doc: "Milliseconds that the node waits for the answer to such a ping before it closes the connection."},
	}
}

func (c *Config) loggingOptions() []option {
	const g = groupLogging
	return []option{
		{name: "Log", group: g, def: "", target: textField(&c.Log),
			doc: "The folder for log files. When empty, log lines go to standard error only."},
		{name: nameLogLevel, group: g, def: string(LogLevelDefault),
			target: enumField(&c.LogLevel, LogLevelDefault, LogLevelVerbose, LogLevelDebug, LogLevelInformation,
				LogLevelWarning, LogLevelError, LogLevelFatal),
			doc: "The least severity that is logged. Default means Information. With Fatal, the node logs only why it ends by itself. SIGHUP and POST /admin/reloadconfig read it from the file again."},
		{name: "LogConsoleFormat", group: g, def: string(LogFormatPlain),
			target: enumField(&c.LogConsoleFormat, LogFormatPlain, LogFormatJSON),
			doc:    "The form of log lines, on standard error and in files alike."},
		{name: "LogFileSize", group: g, def: "1073741824", target: intField(&c.LogFileSize, 1<<10, math.MaxInt64),
			doc: "The size in bytes at which a new log file begins."},
		{name: "LogFileInterval", group: g, def: string(LogIntervalDay),
			target: enumField(&c.LogFileInterval, LogIntervalInfinite, LogIntervalYear, LogIntervalMonth, LogIntervalDay,
				LogIntervalHour, LogIntervalMinute),
			doc: "How often a new log file begins."},
		{name: "LogFileRetentionCount", group: g, def: "31", target: intField(&c.LogFileRetentionCount, 1, math.MaxInt32),
			doc: "How many finished log files stay."},
		{name: "DisableLogFile", group: g, def: "False", target: boolField(&c.DisableLogFile),
			doc: "Write no log files even when Log is set."},
	}
}

func (c *Config) certificateOptions() []option {
	const file = groupCertificateFile
	return []option{
		{name: "TrustedRootCertificatesPath", group: groupCertificate, def: defaultRootsPath, target: textField(&c.TrustedRootCertificatesPath),
			doc: "The folder of the trusted root certificates (.pem, .crt, .cer, .der)."},
		{name: "CertificateReservedNodeCommonName", group: groupCertificate, def: "", target: textField(&c.CertificateReservedNodeCommonName),
			doc: "The pattern that the common name in the certificate of another node must match. When empty, the common name in the certificate of this node."},
		{name: "AllowServerOnlyNodeCertificates", group: groupCertificate, def: "False", target: boolField(&c.AllowServerOnlyNodeCertificates),
			doc: "Accept certificates of nodes, this one included, whose extended key usage lacks client authentication. Public authorities no longer issue it. Set it on every node of the cluster. It takes effect at a restart only."},
		{name: "CertificateFile", group: file, def: "", target: textField(&c.CertificateFile),
			doc: "The node's certificate: a PKCS#12 bundle (.p12, .pfx), or X.509 in PEM or DER form. Intermediate certificates follow it in the same file."},
		{name: "CertificatePrivateKeyFile", group: file, def: "", target: textField(&c.CertificatePrivateKeyFile),
			doc: "The private key of an X.509 certificate."},
		{name: "CertificatePassword", group: file, def: "", target: textField(&c.CertificatePassword), sensitive: true,
			doc: "The password of a PKCS#12 bundle."},
		{name: "CertificatePrivateKeyPassword", group: file, def: "", target: textField(&c.CertificatePrivateKeyPassword), sensitive: true,
			doc: "The password of an encrypted private key file."},
	}
}

func (c *Config) clusterOptions() []option {
	const g = groupCluster
	const ms = time.Millisecond
	return []option{
		{name: "ClusterSize", group: g, def: "1", target: intField(&c.ClusterSize, math.MinInt32, math.MaxInt32),
			doc: "The number of voting nodes of the cluster."},
		{name: "NodePriority", group: g, def: "0", target: intField(&c.NodePriority, math.MinInt32, math.MaxInt32),
			doc: "A node with a higher number is more likely to win an election."},
		{name: "ReadOnlyReplica", group: g, def: "False", target: boolField(&c.ReadOnlyReplica),
			doc: "Receive the log without a vote, and never become leader."},
		{name: "DiscoverViaDns", group: g, def: "True", target: boolField(&c.DiscoverViaDns),
			doc: "Find the other nodes by looking up ClusterDns. When false, by GossipSeed."},
		{name: "ClusterDns", group: g, def: "fake.dns", target: textField(&c.ClusterDns),
			doc: "The name that resolves to the addresses of the nodes."},
		{name: "GossipSeed", group: g, def: "", target: endpointsField(&c.GossipSeed),
			doc: "Other nodes to begin gossip with, as host:port separated by commas. The port is the one between nodes, or the one for clients. GossipPort stands for ReplicationPort."},
		{name: "ClusterGossipPort", group: g, def: "2113", target: intField(&c.ClusterGossipPort, 1, math.MaxUint16),
			doc: "The port between nodes of the nodes found by DNS. Unless it is set, ReplicationPort."},
		{name: "GossipPort", group: g, def: "1114", target: intField(&c.GossipPort, 0, math.MaxUint16),
			doc: "Nothing listens there: gossip uses ReplicationPort. A seed with this port means the same host at ReplicationPort.", synonyms: []string{"IntHttpPort"}, deprecated: "GossipPort is deprecated: gossip uses ReplicationPort."},
		{name: "CatchUpThrottleMiB", group: g, def: "32", target: intField(&c.CatchUpThrottleMiB, 0, 1<<20),
			doc: "MiB a second that a node which lags fetches from others while the cluster is being written to. 0: no bound."},
		{name: "GossipIntervalMs", group: g, def: "2000", target: durationField(&c.GossipInterval, ms, 1),
			doc: "Milliseconds between two rounds of gossip."},
		{name: "GossipTimeoutMs", group: g, def: "2500", target: durationField(&c.GossipTimeout, ms, 1),
			doc: "Milliseconds that another node has to answer gossip."},
		{name: "DeadMemberRemovalPeriodSec", group: g, def: "1800", target: durationField(&c.DeadMemberRemovalPeriod, time.Second, 0),
			doc: "Seconds for which a dead node stays in gossip."},
		{name: "LeaderElectionTimeoutMs", group: g, def: "1000", target: durationField(&c.LeaderElectionTimeout, ms, 1),
			doc: "Milliseconds without a message of the leader after which an election begins."},
		{name: "DiskHangTimeoutMs", group: g, def: "0", target: durationField(&c.DiskHangTimeout, ms, 0),
			doc: "Milliseconds that one operation on the disk may take. After that the node takes no part in its cluster until the operation returns, so that another node leads. At least LeaderElectionTimeoutMs. 0: twice that, at least 2000."},
		{name: "ClockToleranceSec", group: g, def: "60", target: durationField(&c.ClockTolerance, time.Second, 0),
			doc: "Seconds that the clock of this node may differ from the clocks of most members, or be behind the newest event of the log. Beyond that /health/ready is 503, and a leader hands over. 0: any clock is right."},
		{name: "UnsafeAllowSurplusNodes", group: g, def: "False", target: boolField(&c.UnsafeAllowSurplusNodes),
			doc: "Let more nodes join than ClusterSize says. UNSAFE: data may be lost."},
		{name: "StreamInfoCacheCapacity", group: g, def: "0", target: intField(&c.StreamInfoCacheCapacity, 0, math.MaxInt32),
			doc: "The number of streams whose last number and metadata are cached. 0: chosen by the node."},
		{name: "RaftLogStore", group: g, def: string(DefaultRaftLogStore),
			target: enumField(&c.RaftLogStore, LogStoreBoltDB, LogStoreWal),
			doc:    "The library that keeps the Raft log. After a change the next start takes the entries over."},
		{name: "FollowerWrites", group: g, def: string(FollowerWritesRedirect),
			target: enumField(&c.FollowerWrites, FollowerWritesRedirect, FollowerWritesForward),
			doc:    "What a follower does with a request that needs the leader: answer 307, or forward it."},
	}
}

func (c *Config) databaseOptions() []option {
	const g = groupDatabase
	const ms = time.Millisecond
	return []option{
		{name: "Db", group: g, def: "./data", target: textField(&c.Db),
			doc: "The data folder."},
		{name: "Index", group: g, def: "", target: textField(&c.Index),
			doc: "The folder of the index. When empty, the folder index within Db."},
		{name: "MemDb", group: g, def: "False", target: boolField(&c.MemDb),
			doc: "Keep everything in memory. All data is gone when the node stops."},
		{name: "PrepareTimeoutMs", group: g, def: "2000", target: durationField(&c.PrepareTimeout, ms, 1),
			doc: "Milliseconds that a write may take, together with CommitTimeoutMs."},
		{name: "CommitTimeoutMs", group: g, def: "2000", target: durationField(&c.CommitTimeout, ms, 1),
			doc: "Milliseconds that a write may take, together with PrepareTimeoutMs."},
		{name: "WriteTimeoutMs", group: g, def: "2000", target: durationField(&c.WriteTimeout, ms, 1),
			doc: "Milliseconds that the node's own writes may take."},
		{name: "MaxTruncation", group: g, def: "268435456", target: intField(&c.MaxTruncation, -1, math.MaxInt64),
			doc: "The number of bytes that truncate.chk may cut off at the start. -1: any number."},
		{name: "SkipDbVerify", group: g, def: "False", target: boolField(&c.SkipDbVerify),
			doc: "Start without checking the checksums of chunks."},
		{name: "ChunkCheckDays", group: g, def: "7", target: intField(&c.ChunkCheckDays, 0, 36500),
			doc: "Days from one check of the checksums of all chunks to the next, while the node runs. 0: only at the start."},
		{name: "SkipIndexVerify", group: g, def: "False", target: boolField(&c.SkipIndexVerify),
			doc: "Start without checking index tables that an older version has written. The node checks newer tables when it reads them."},
		{name: "MaxMemTableSize", group: g, def: "1000000", target: intField(&c.MaxMemTableSize, 1, math.MaxInt32),
			doc: "The number of index entries held in memory before the node writes a table."},
		{name: "PostingsMemory", group: g, def: "67108864", target: intField(&c.PostingsMemory, 64<<10, math.MaxInt32),
			doc: "The number of bytes that the index of categories, types and tags takes in memory before the node writes a table."},
		{name: "MaxAutoMergeIndexLevel", group: g, def: "2147483647", target: intField(&c.MaxAutoMergeIndexLevel, 0, math.MaxInt32),
			doc: "The highest level of index tables that the node merges by itself."},
		{name: "UseIndexBloomFilters", group: g, def: "True", target: boolField(&c.UseIndexBloomFilters),
			doc: "Write a bloom filter with each index table."},
		{name: "StreamExistenceFilterSize", group: g, def: "256000000", target: intField(&c.StreamExistenceFilterSize, 0, math.MaxInt64),
			doc: "The size in bytes of the filter of known streams: about the number of streams expected. 0: no filter."},
		{name: "UnsafeDisableFlushToDisk", group: g, def: "False", target: boolField(&c.UnsafeDisableFlushToDisk), lacks: noLazyWrites, refused: true,
			doc: "Do not wait for the disk. UNSAFE: a power cut loses acknowledged events."},
		{name: "WriteStatsToDb", group: g, def: "False", target: boolField(&c.WriteStatsToDb),
			doc: "Write statistics events into the database."},
	}
}

// scavengeOptions follow those of the database, whose group they are in.
func (c *Config) scavengeOptions() []option {
	const g = groupDatabase
	return []option{
		{name: "DisableScavengeMerging", group: g, def: "False", target: boolField(&c.DisableScavengeMerging),
			doc: "Do not merge small chunks after a scavenge."},
		{name: "ScavengeHistoryMaxAge", group: g, def: "30", target: durationField(&c.ScavengeHistoryMaxAge, 24*time.Hour, 1),
			doc: "Days for which the history of scavenges is kept."},
		{name: "ScavengeBackendPageSize", group: g, def: "16384", target: pageSizeField(&c.ScavengeBackendPageSize),
			doc: "The page size of the scavenge database in bytes: a power of two from 512 to 65536. A value below 512 is in KiB."},
		{name: "ScavengeBackendCacheSize", group: g, def: "67108864", target: intField(&c.ScavengeBackendCacheSize, 0, math.MaxInt64),
			doc: "The cache of the scavenge database in bytes."},
		{name: "ScavengeSchedule", group: g, def: "", target: textField(&c.ScavengeSchedule),
			doc: "When all nodes of the cluster scavenge, one after the other, the leader last: a cron expression of five fields in UTC, such as '0 3 * * SUN', or @daily. Empty: only on request."},
		{name: "ScavengeScheduleThreshold", group: g, def: "0", target: intField(&c.ScavengeScheduleThreshold, math.MinInt32, math.MaxInt32),
			doc: "The threshold of scheduled scavenges."},
		{name: "ScavengeScheduleThrottle", group: g, def: "100", target: intField(&c.ScavengeScheduleThrottle, 1, 100),
			doc: "The percentage of time in which a scheduled scavenge works."},
	}
}

// backupOptions follow those of scavenges, whose group they are in. The keys of an
// object store are not options: they come from the environment alone.
func (c *Config) backupOptions() []option {
	const g = groupDatabase
	return []option{
		{name: "BackupTo", group: g, def: "", target: textField(&c.BackupTo),
			doc: "Where the node stores backups of itself: a folder of its own, or s3://bucket/prefix with the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Empty: nowhere."},
		{name: "BackupS3Endpoint", group: g, def: "", target: textField(&c.BackupS3Endpoint),
			doc: "The URL of the object store of BackupTo. Empty: Amazon S3 in AWS_REGION."},
		{name: "BackupSchedule", group: g, def: "", target: textField(&c.BackupSchedule),
			doc: "When the node backs itself up: a cron expression of five fields in UTC, such as '0 1 * * *', or @daily. Empty: only on request."},
		{name: "BackupKeep", group: g, def: "0", target: intField(&c.BackupKeep, 0, math.MaxInt32),
			doc: "How many backups stay. The node removes older ones after each success. 0: all stay."},
		{name: "BackupThrottleMiB", group: g, def: "50", target: intField(&c.BackupThrottleMiB, 0, math.MaxInt32),
			doc: "The most MiB that a backup reads in a second. 0: no limit."},
		{name: "BackupVerify", group: g, def: "True", target: boolField(&c.BackupVerify),
			doc: "Read each backup after it is written, and compare it."},
	}
}

func (c *Config) interfaceOptions() []option {
	const g = groupInterface
	const port = math.MaxUint16
	return []option{
		{name: "NodeIp", group: g, def: "127.0.0.1", target: addrField(&c.NodeIp), synonyms: []string{"ExtIp"},
			doc: "The address on which the node serves HTTP."},
		{name: "NodePort", group: g, def: "2113", target: intField(&c.NodePort, 0, port), synonyms: []string{"HttpPort", "ExtHttpPort"},
			doc: "The port on which the node serves HTTP. 0: a free one."},
		{name: "ReplicationIp", group: g, def: "127.0.0.1", target: addrField(&c.ReplicationIp), synonyms: []string{"IntIp"},
			doc: "The address that other nodes connect to."},
		{name: "ReplicationPort", group: g, def: "1112", target: intField(&c.ReplicationPort, 0, port), synonyms: []string{"IntTcpPort"},
			doc: "The port that other nodes connect to."},
		{name: "NodeHostAdvertiseAs", group: g, def: "", target: textField(&c.NodeHostAdvertiseAs), synonyms: []string{"ExtHostAdvertiseAs", "ExtIpAdvertiseAs"},
			doc: "The host that nodes and clients use instead of NodeIp."},
		{name: "NodePortAdvertiseAs", group: g, def: "0", target: intField(&c.NodePortAdvertiseAs, 0, port), synonyms: []string{"HttpPortAdvertiseAs", "ExtHttpPortAdvertiseAs"},
			doc: "The port that nodes and clients use instead of NodePort. 0: NodePort."},
		{name: "ReplicationHostAdvertiseAs", group: g, def: "", target: textField(&c.ReplicationHostAdvertiseAs), synonyms: []string{"IntHostAdvertiseAs", "IntIpAdvertiseAs"},
			doc: "The host that other nodes use instead of ReplicationIp."},
		{name: "ReplicationTcpPortAdvertiseAs", group: g, def: "0", target: intField(&c.ReplicationTcpPortAdvertiseAs, 0, port), synonyms: []string{"IntTcpPortAdvertiseAs"},
			doc: "The port that other nodes use instead of ReplicationPort. 0: ReplicationPort."},
		{name: "AdvertiseHostToClientAs", group: g, def: "", target: textField(&c.AdvertiseHostToClientAs),
			doc: "The host that gossip names to clients."},
		{name: "AdvertiseNodePortToClientAs", group: g, def: "0", target: intField(&c.AdvertiseNodePortToClientAs, 0, port), synonyms: []string{"AdvertiseHttpPortToClientAs"},
			doc: "The port that gossip names to clients. 0: the advertised node port."},
		{name: "HostNames", group: g, def: "", target: hostsField(&c.HostNames),
			doc: "More host names that clients use for this node, separated by commas. *.example.com stands for all names below example.com, * for any name. " +
				"With Insecure, the node answers 421 to a name with a dot, unless it is here, is advertised, or is the name of the machine: a page of another site could have sent the request."},
		{name: "EnableUnixSocket", group: g, def: "False", target: boolField(&c.EnableUnixSocket),
			doc: "Offer redaction at a local socket, eventstore.sock, in the data folder."},
		{name: "DisableAdminUi", group: g, def: "False", target: boolField(&c.DisableAdminUi),
			doc: "Remove the user interface and all routes under /admin."},
		{name: "MaxConnections", group: g, def: "0", target: intField(&c.MaxConnections, 0, 1<<20),
			doc: "The most connections of clients at once. At this limit the node closes the connection that was idle longest, of the address that has most, for a new one. " +
				"0: the limit of open files of the process, less 512 or half of it, whichever is less, and at most 16384."},
		{name: "MaxLiveConnections", group: g, def: "1024", target: intField(&c.MaxLiveConnections, 1, 1<<20),
			doc: "The most live tails, and subscriptions over gRPC, at once. The node refuses more with 503 or RESOURCE_EXHAUSTED. " +
				"It refuses one user or address earlier, so that others get some. An eighth is kept for operators."},
		{name: "RequestMemoryMiB", group: g, def: "0", target: intField(&c.RequestMemoryMiB, 0, 1<<20),
			doc: "The most MiB for all requests together, until their clients have read the answers, over HTTP and gRPC. More requests wait for a while. Then the node refuses them with 503 or RESOURCE_EXHAUSTED. An eighth is kept for small ones. 0: an eighth of the memory of the machine, from 128 to 1024."},
		{name: "WebDir", group: g, def: "", target: textField(&c.WebDir),
			doc: "A folder with a web interface to serve under /web, such as the official one. It has index.html."},
		{name: "WebTitle", group: g, def: "", target: textField(&c.WebTitle),
			doc: "A name that the user interface shows on top, to tell clusters apart."},
		{name: "WebTone", group: g, def: string(WebToneNone), target: enumField(&c.WebTone, WebToneNone, WebToneTest, WebToneProduction),
			doc: "The coloured band with this word on top of the user interface. None: no band."},
		{name: "DisableStatsOnHttp", group: g, def: "False", target: boolField(&c.DisableStatsOnHttp),
			doc: "Remove /stats and /metrics."},
		{name: "DisableGossipOnHttp", group: g, def: "False", target: boolField(&c.DisableGossipOnHttp),
			doc: "Remove /gossip."},
		{name: "EnableAtomPubOverHttp", group: g, def: "True", target: boolField(&c.EnableAtomPubOverHttp),
			doc: "Serve streams as Atom feeds under /streams."},
		{name: "EnableTrustedAuth", group: g, def: "False", target: boolField(&c.EnableTrustedAuth),
			doc: "Believe the user and groups that a proxy names in the header ES-TrustedAuth or Kurrent-TrustedAuth. The proxy must set one of them, and remove both from requests of clients."},
	}
}

func (c *Config) projectionOptions() []option {
	const g = groupProjection
	const ms = time.Millisecond
	return []option{
		{name: "RunProjections", group: g, def: string(ProjectionsNone),
			target: enumField(&c.RunProjections, ProjectionsNone, ProjectionsSystem, ProjectionsAll),
			doc:    "Which projections run: none, only those whose name begins with $, or all. With Dev the default is those whose name begins with $."},
		{name: "StartStandardProjections", group: g, def: "False", target: boolField(&c.StartStandardProjections),
			doc: "Enable the system projections at the start, as Dev does."},
		{name: "ProjectionThreads", group: g, def: "3", target: intField(&c.ProjectionThreads, 1, math.MaxInt32),
			doc: "The number of projections that the node works on at once."},
		{name: "ProjectionsQueryExpiry", group: g, def: "5", target: durationField(&c.ProjectionsQueryExpiry, time.Minute, 1),
			doc: "Minutes after which the node removes an unused query."},
		{name: "FaultOutOfOrderProjections", group: g, def: "False", target: boolField(&c.FaultOutOfOrderProjections),
			doc: "Fault a projection that gets another event number than it expects."},
		{name: "ProjectionCompilationTimeout", group: g, def: "500", target: durationField(&c.ProjectionCompilationTimeout, ms, 1),
			doc: "Milliseconds that the compilation of a projection may take."},
		{name: "ProjectionExecutionTimeout", group: g, def: "250", target: durationField(&c.ProjectionExecutionTimeout, ms, 1),
			doc: "Milliseconds that one call of a projection's handler may take."},
		{name: "MaxProjectionStateSize", group: g, def: "2147483647", target: intField(&c.MaxProjectionStateSize, 1, math.MaxInt64),
			doc: "The most bytes for the state and the result together, of a projection or of one of its partitions."},
	}
}
