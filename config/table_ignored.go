package config

import "math"

// ignoredOptions lists the options of EventStoreDB 5 to 25 that need no action here:
// they are accepted so that existing configurations start, and /info/options shows
// them. One warning names those that are set. Options that an operator would rely on
// are refused.
func ignoredOptions() []option {
	var t []option
	kinds := map[Kind]target{
		KindString: textField(new(string)), KindBool: boolField(new(bool)), KindNumber: numberField(new(float64)),
		KindInt: intField(new(int64), math.MinInt64, math.MaxInt64),
	}
	add := func(group string, kind Kind, def, name, doc string) *option {
		t = append(t, option{name: name, group: group, def: def, doc: doc + " No effect.", target: ignored(kinds[kind])})
		return &t[len(t)-1]
	}
	ended := func(group string, kind Kind, def, name, doc, why string) {
		add(group, kind, def, name, doc+" "+why).deprecated = name + " has no effect. " + why
	}
	refuse := func(group, def, name, lacks, doc string) {
		o := add(group, KindString, def, name, "")
		o.doc, o.lacks, o.refused = doc, lacks, true
	}

	add(groupApplication, KindInt, "0", "WorkerThreads", "Threads of the pool of workers.")
	add(groupApplication, KindBool, "False", "SkipIndexScanOnReads", "Skip the scan for duplicate index entries.")
	add(groupApplication, KindBool, "False", "TelemetryOptout", "Send no usage data. None is ever sent.")
	add(groupApplication, KindBool, "False", "StructuredLog", "Write log lines as JSON. LogConsoleFormat does that.")
	add(groupApplication, KindString, "", "Defines", "Conditions within the configuration file.")
	add(groupApplication, KindBool, "False", "Force", "Start although the environment is not supported.")
	add(groupApplication, KindInt, "16777216", "MaxAppendEventSize", "The largest event of an append in bytes. MaxAppendSize bounds an append with all its events.")
	add(groupDevMode, KindBool, "False", "RemoveDevCerts", "Remove development certificates from the certificate store.")
	add(groupLogging, KindString, "logconfig.json", "LogConfig", "The file with finer log settings.")

	refuse(groupAuth, "internal", "AuthorizationType", noPlugIns, "The plug-in that authorises.")
	add(groupAuth, KindString, "", "AuthorizationConfig", "The configuration file of that plug-in.")
	refuse(groupAuth, "internal", "AuthenticationType", noPlugIns, "The plug-in that authenticates.")
	add(groupAuth, KindString, "", "AuthenticationConfig", "The configuration file of that plug-in.")
	add(groupAuth, KindBool, "False", "DisableFirstLevelHttpAuthorization", "Skip the first check of rights on HTTP requests.")

	for _, name := range []string{"CertificateStoreLocation", "CertificateStoreName", "CertificateSubjectName", "CertificateThumbprint",
		"TrustedRootCertificateStoreLocation", "TrustedRootCertificateStoreName", "TrustedRootCertificateSubjectName",
		"TrustedRootCertificateThumbprint"} {
		refuse(groupCertificateStore, "", name, noStores, "Certificates from the store of the operating system.")
	}

	add(groupCluster, KindInt, "-1", "CommitCount", "Nodes that acknowledge a commit. A quorum always does.").
		synonyms = []string{"CommitAckCount"}
	add(groupCluster, KindInt, "0", "GossipPortAdvertiseAs", "The port of gossip that other nodes use. Gossip uses ReplicationPort.").
		synonyms = []string{"IntHttpPortAdvertiseAs"}
	add(groupCluster, KindInt, "-1", "PrepareCount", "Nodes that acknowledge a prepare. A quorum always does.").
		synonyms = []string{"PrepareAckCount"}
	add(groupCluster, KindInt, "60000", "GossipAllowedDifferenceMs", "Milliseconds that the clocks of two nodes may differ. See ClockToleranceSec.")

	add(groupDatabase, KindNumber, "2", "MinFlushDelayMs", "The least delay between flushes. Writes that wait always share one flush.")
	add(groupDatabase, KindInt, "-1", "CachedChunks", "The number of cached chunks. The operating system caches them.")
	add(groupDatabase, KindInt, "536871424", "ChunksCacheSize", "The memory in bytes for cached chunks. The operating system caches them.")
	add(groupDatabase, KindInt, "1", "InitializationThreads", "How many chunks the node opens at once at the start.").
		target = ignored(intField(new(int), 1, math.MaxInt32))
	add(groupDatabase, KindInt, "16", "IndexCacheDepth", "The depth of the cache of middle points of an index table.")
	add(groupDatabase, KindInt, "100", "HashCollisionReadLimit", "Events read to tell streams with equal hashes apart.")
	add(groupDatabase, KindInt, "100000", "ScavengeHashUsersCacheCapacity", "Stream hashes that a scavenge keeps to find collisions. The index has the names of streams.").
		target = ignored(intField(new(int), 1, math.MaxInt32))
	add(groupDatabase, KindInt, "0", "IndexCacheSize", "Entries in each index cache.")
	add(groupDatabase, KindBool, "False", "WriteThrough", "Bypass the write cache of the file system.")
	add(groupDatabase, KindBool, "False", "Unbuffered", "Bypass the caches of the file system.")
	add(groupDatabase, KindBool, "False", "ReduceFileCachePressure", "Open files so that they leave the file cache sooner.")
	add(groupDatabase, KindInt, "5", "ChunkInitialReaderCount", "Readers opened with each chunk.")
	add(groupDatabase, KindInt, "0", "ReaderThreadsCount", "Threads for reads.")
	add(groupDatabase, KindBool, "False", "OptimizeIndexMerge", "Merge index tables with less work.")
	add(groupDatabase, KindBool, "False", "AlwaysKeepScavenged", "Keep a scavenged chunk even when it is larger.").
		deprecated = "AlwaysKeepScavenged is deprecated and has no effect."
	add(groupDatabase, KindBool, "False", "UnsafeIgnoreHardDelete", "Allow writes to hard-deleted streams. Nodes would differ.").
		deprecated = "UnsafeIgnoreHardDelete is unsafe in a cluster and has no effect."
	t = append(t, option{name: "DbLogFormat", group: groupDatabase, def: "V2", target: ignored(enumField(new(string), "V2", "V3", "ExperimentalV3")),
		doc: "The format of the log. No effect."})
	add(groupDatabase, KindBool, "False", "BetterOrdering", "Order the events of queued writes. They are always ordered.")
	refuse(groupDatabase, "identity", "Transform", noEncryption, "The transformation of chunk files on disk.")

	add(groupInterface, KindInt, "1113", "NodeTcpPort", "The port of the TCP client protocol, which is not offered.").
		synonyms = []string{"ExtTcpPort"}
	add(groupInterface, KindInt, "0", "NodeTcpPortAdvertiseAs", "The port of that protocol that other nodes name.").
		synonyms = []string{"ExtTcpPortAdvertiseAs"}
	add(groupInterface, KindInt, "0", "AdvertiseTcpPortToClientAs", "The port of that protocol that gossip names to clients.")
	add(groupInterface, KindBool, "False", "EnableExternalTcp", "Offer the TCP client protocol.")
	add(groupInterface, KindBool, "False", "DisableExternalTcpTls", "Offer that protocol without TLS.")
	add(groupInterface, KindBool, "False", "DisableInternalTcpTls", "Replicate without TLS.")
	add(groupInterface, KindInt, "700", "ReplicationHeartbeatTimeout", "Milliseconds that a heartbeat between nodes waits for its answer.").
		synonyms = []string{"IntTcpHeartbeatTimeout"}
	add(groupInterface, KindInt, "700", "ReplicationHeartbeatInterval", "Milliseconds between heartbeats between nodes.").
		synonyms = []string{"IntTcpHeartbeatInterval"}
	add(groupInterface, KindInt, "1000", "NodeHeartbeatTimeout", "Milliseconds that a heartbeat to a client waits for its answer.").
		synonyms = []string{"ExtTcpHeartbeatTimeout"}
	add(groupInterface, KindInt, "2000", "NodeHeartbeatInterval", "Milliseconds between heartbeats to a client.").
		synonyms = []string{"ExtTcpHeartbeatInterval"}
	add(groupInterface, KindInt, "10485760", "ConnectionPendingSendBytesThreshold", "Bytes waiting to be sent at which a TCP connection is closed.")
	add(groupInterface, KindInt, "50000", "ConnectionQueueSizeThreshold", "Operations waiting at which a TCP connection is closed.")
	add(groupInterface, KindBool, "True", "GossipOnSingleNode", "Gossip although the cluster has one node. A node always gossips.").
		deprecated = "GossipOnSingleNode is deprecated and has no effect."

	// Version 5 had an internal and an external interface.
	add(groupInterface, KindInt, "0", "IntSecureTcpPort", "The port between nodes with TLS. ReplicationPort has TLS with a certificate.")
	add(groupInterface, KindInt, "0", "IntSecureTcpPortAdvertiseAs", "That port as other nodes use it.")
	add(groupInterface, KindInt, "0", "ExtSecureTcpPort", "The port of the TCP client protocol with TLS, which is not offered.")
	add(groupInterface, KindInt, "0", "ExtSecureTcpPortAdvertiseAs", "That port as clients use it.")
	add(groupInterface, KindString, "", "IntHttpPrefixes", "Prefixes of addresses that HTTP is served on. NodeIp and NodePort say it.")
	add(groupInterface, KindString, "", "ExtHttpPrefixes", "Prefixes of addresses that HTTP is served on. NodeIp and NodePort say it.")
	add(groupInterface, KindBool, "True", "AddInterfacePrefixes", "Add prefixes for the interfaces.")
	ended(groupInterface, KindBool, "True", "AdminOnExt", "Serve the user interface on the external interface.", "There is one port for all: DisableAdminUi removes the user interface.")
	ended(groupInterface, KindBool, "True", "StatsOnExt", "Serve statistics on the external interface.", "There is one port for all: DisableStatsOnHttp removes statistics.")
	ended(groupInterface, KindBool, "True", "GossipOnExt", "Serve gossip on the external interface.", "There is one port for all: DisableGossipOnHttp removes gossip.")
	ended(groupInterface, KindBool, "False", "UseInternalSsl", "Use TLS between nodes.", "Nodes use TLS when they have a certificate: see CertificateFile.")
	ended(groupInterface, KindBool, "False", "DisableInsecureTcp", "Offer no TCP without TLS.", "Nodes use TLS when they have a certificate: see CertificateFile.")
	ended(groupInterface, KindString, "", "SslTargetHost", "The host name in the certificates of other nodes.", "See CertificateReservedNodeCommonName.")
	ended(groupInterface, KindBool, "True", "SslValidateServer", "Check the certificates of other nodes.", "Nodes always check certificates.")
	return t
}
