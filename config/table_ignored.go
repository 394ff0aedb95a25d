package config

import "math"

// ignoredOptions lists what the reference acts on and this product need not:
// accepted so that existing configurations start, shown in /info/options, and
// warned about when set. Those that somebody would rely on are refused.
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
	refuse := func(group, def, name, lacks, doc string) {
		o := add(group, KindString, def, name, "")
		o.doc, o.lacks, o.refused = doc, lacks, true
	}

	add(groupApplication, KindInt, "0", "WorkerThreads", "Threads of the pool of workers.")
	add(groupApplication, KindBool, "False", "SkipIndexScanOnReads", "Skip the scan for duplicate index entries.")
	add(groupApplication, KindBool, "False", "TelemetryOptout", "Send no usage data. None is ever sent.")
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

	add(groupCluster, KindInt, "-1", "CommitCount", "Nodes that acknowledge a commit. A quorum always does.")
	add(groupCluster, KindInt, "0", "GossipPortAdvertiseAs", "The port of gossip that other nodes are told. Gossip goes over ReplicationPort.")
	add(groupCluster, KindInt, "-1", "PrepareCount", "Nodes that acknowledge a prepare. A quorum always does.")
	add(groupCluster, KindInt, "60000", "GossipAllowedDifferenceMs", "Milliseconds that the clocks of two nodes may be apart. Nothing depends on it.")

	add(groupDatabase, KindNumber, "2", "MinFlushDelayMs", "The least delay between flushes. Writes that wait are always joined.")
	add(groupDatabase, KindInt, "-1", "CachedChunks", "The number of cached chunks. The operating system caches them.")
	add(groupDatabase, KindInt, "536871424", "ChunksCacheSize", "The memory in bytes for cached chunks. The operating system caches them.")
	add(groupDatabase, KindInt, "1", "InitializationThreads", "How many chunks are opened at once at start.").
		target = ignored(intField(new(int), 1, math.MaxInt32))
	add(groupDatabase, KindInt, "16", "IndexCacheDepth", "The depth of the cache of middle points of an index table.")
	add(groupDatabase, KindInt, "100", "HashCollisionReadLimit", "Events read to tell streams with equal hashes apart.")
	add(groupDatabase, KindInt, "100000", "ScavengeHashUsersCacheCapacity", "Stream hashes remembered when a scavenge looks for collisions. Streams are known by their names.").
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
	add(groupDatabase, KindBool, "False", "UnsafeIgnoreHardDelete", "Let hard-deleted streams be written again. Nodes would come apart.").
		deprecated = "UnsafeIgnoreHardDelete is unsafe in a cluster and has no effect."
	t = append(t, option{name: "DbLogFormat", group: groupDatabase, def: "V2", target: ignored(enumField(new(string), "V2", "V3", "ExperimentalV3")),
		doc: "The format of the log. No effect."})

	add(groupInterface, KindInt, "1113", "NodeTcpPort", "The port of the TCP client protocol, which is not offered.").
		synonyms = []string{"ExtTcpPort"}
	add(groupInterface, KindInt, "0", "NodeTcpPortAdvertiseAs", "The port of that protocol told to others.").
		synonyms = []string{"ExtTcpPortAdvertiseAs"}
	add(groupInterface, KindInt, "0", "AdvertiseTcpPortToClientAs", "The port of that protocol told to clients.")
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
	add(groupInterface, KindBool, "True", "GossipOnSingleNode", "Gossip although the cluster has one node. It always does.").
		deprecated = "GossipOnSingleNode is deprecated and has no effect."
	return t
}
