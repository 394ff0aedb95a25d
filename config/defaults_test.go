package config_test

import (
	"testing"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
)

// TestDefaults are those that existing configurations and procedures count on.
func TestDefaults(t *testing.T) {
	want := map[string]string{
		"Db": "./data", "Index": "data/index", "MemDb": "False", "Log": "", "LogLevel": "Default", "LogConsoleFormat": "Plain",
		"LogFileSize": "1073741824", "LogFileInterval": "Day", "LogFileRetentionCount": "31", "DisableLogFile": "False",
		"NodeIp": "127.0.0.1", "NodePort": "2113", "ReplicationIp": "127.0.0.1", "ReplicationPort": "1112", "NodeTcpPort": "1113",
		"NodeHostAdvertiseAs": "", "ReplicationHostAdvertiseAs": "", "AdvertiseHostToClientAs": "", "NodePortAdvertiseAs": "0",
		"AdvertiseNodePortToClientAs": "0", "HostNames": "", "EnableUnixSocket": "False", "EnableAtomPubOverHttp": "True", "EnableTrustedAuth": "False",
		"DisableAdminUi": "False", "MaxConnections": "0", "MaxLiveConnections": "1024", "RequestMemoryMiB": "0", "WebDir": "", "WebTitle": "", "WebTone": "None", "DisableStatsOnHttp": "False", "DisableGossipOnHttp": "False", "Insecure": "False", "Dev": "False",
		"AllowAnonymousEndpointAccess": "False", "AllowAnonymousStreamAccess": "True", "OverrideAnonymousEndpointAccessForGossip": "True",
		"ClusterSize": "1", "NodePriority": "0", "ReadOnlyReplica": "False", "DiscoverViaDns": "True", "ClusterDns": "fake.dns",
		"GossipSeed": "", "ClusterGossipPort": "2113", "GossipIntervalMs": "2000", "GossipTimeoutMs": "2500",
		"GossipAllowedDifferenceMs": "60000", "DeadMemberRemovalPeriodSec": "1800", "LeaderElectionTimeoutMs": "1000",
		"UnsafeAllowSurplusNodes": "False", "PrepareTimeoutMs": "2000", "CommitTimeoutMs": "2000", "WriteTimeoutMs": "2000",
		"MinFlushDelayMs": "2", "MaxAppendSize": "1048576", "MaxTruncation": "268435456", "DisableScavengeMerging": "False",
		"ScavengeHistoryMaxAge": "30", "AlwaysKeepScavenged": "False", "ScavengeBackendPageSize": "16384",
		"ScavengeBackendCacheSize": "67108864", "ScavengeHashUsersCacheCapacity": "100000", "SkipDbVerify": "False", "SkipIndexVerify": "False",
		"MaxMemTableSize": "1000000", "IndexCacheDepth": "16", "MaxAutoMergeIndexLevel": "2147483647", "UseIndexBloomFilters": "True",
		"StreamExistenceFilterSize": "256000000", "ChunksCacheSize": "536871424", "StreamInfoCacheCapacity": "0",
		"UnsafeDisableFlushToDisk": "False", "UnsafeIgnoreHardDelete": "False", "StatsPeriodSec": "30", "WriteStatsToDb": "False",
		"EnableHistograms": "False", "LogHttpRequests": "False", "DisableHttpCaching": "False", "AllowUnknownOptions": "False",
		"RunProjections": "None", "StartStandardProjections": "False", "ProjectionThreads": "3", "ProjectionExecutionTimeout": "250",
		"ProjectionCompilationTimeout": "500", "MaxProjectionStateSize": "2147483647", "InitializationThreads": "1", "CertificateFile": "", "CertificatePrivateKeyFile": "",
		"CertificatePassword": "********", "CertificatePrivateKeyPassword": "********", "TrustedRootCertificatesPath": "/etc/ssl/certs",
		"CertificateReservedNodeCommonName": "", "DefaultAdminPassword": "********", "DefaultOpsPassword": "********",
	}
	c := config.Default()
	for _, v := range c.Values() {
		if def, ok := want[v.Name]; ok && v.Value != def {
			t.Errorf("%s is %q, want %q", v.Name, v.Value, def)
		}
		delete(want, v.Name)
	}
	for name := range want {
		t.Errorf("there is no %s", name)
	}
	if c.DefaultAdminPassword != "changeit" || c.DefaultOpsPassword != "changeit" {
		t.Error("default passwords")
	}
}

func TestSynonyms(t *testing.T) {
	for old, name := range map[string]string{
		"ExtIp": "NodeIp", "HttpPort": "NodePort", "IntIp": "ReplicationIp", "IntTcpPort": "ReplicationPort", "ExtTcpPort": "NodeTcpPort",
	} {
		value := "7"
		if name == "NodeIp" || name == "ReplicationIp" {
			value = "127.0.0.7"
		}
		c := mustLoad(t, input{args: []string{"--" + old, value, "--" + old + "=" + value}})
		count := 0
		for _, line := range c.Warnings() {
			if line == "option "+old+" (Command Line) is deprecated, use "+name {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%s: warnings %q", old, c.Warnings())
		}
	}
}

func TestDerivedValues(t *testing.T) {
	type view struct {
		limit     int64
		page      int
		pageShown string
		selfMade  bool
		secured   bool
	}
	cases := []struct {
		name string
		in   input
		want view
	}{
		{"nothing set", input{}, view{0, 16384, "16384", false, false}},
		{"a limit of appends", input{args: []string{"--max-append-size=2000"}}, view{2000, 16384, "16384", false, false}},
		{"the default as limit of appends", input{files: yamlFile("MaxAppendSize: 1048576")}, view{1 << 20, 16384, "16384", false, false}},
		{"pages in KiB", input{files: yamlFile("ScavengeBackendPageSize: 16")}, view{0, 16384, "16", false, false}},
		{"one KiB", input{files: yamlFile("ScavengeBackendPageSize: 1")}, view{0, 1024, "1", false, false}},
		{"pages in bytes", input{files: yamlFile("ScavengeBackendPageSize: 512")}, view{0, 512, "512", false, false}},
		{"development", input{args: []string{"--dev"}}, view{0, 16384, "16384", true, true}},
		{"development, insecure", input{args: []string{"--dev", "--insecure"}}, view{0, 16384, "16384", false, false}},
		{"development with a certificate", input{args: []string{"--dev", "--certificate-file=x"}}, view{0, 16384, "16384", false, true}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g := mustLoad(t, c.in)
			got := view{g.AppendLimit(), g.ScavengeBackendPageSize, value(t, g, "ScavengeBackendPageSize").Value, g.SelfMadeCertificate(), g.Secured()}
			check.Equal(t, got, c.want)
		})
	}
	byHand := config.Default()
	byHand.MaxAppendSize = 5
	check.Equal(t, byHand.AppendLimit(), 5, "a limit set by hand is not one")
}

func TestFilesOfOtherSystems(t *testing.T) {
	c := mustLoad(t, input{files: map[string]string{"/etc/annals/annals.conf": "\ufeff---\r\nNodePort: 5\r\nGossipSeed:\r\n  - a:1\r\nDb: /x # the data\r\n"}})
	if c.NodePort != 5 || c.Db != "/x" || len(c.GossipSeed) != 1 || c.GossipSeed[0] != "a:1" {
		t.Errorf("%d, %q, %q", c.NodePort, c.Db, c.GossipSeed)
	}
}
