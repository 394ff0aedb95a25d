package config_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
)

// environmentOf returns the variables of the only service of a compose file.
func environmentOf(t *testing.T, content []byte) (environ []string) {
	t.Helper()
	var file struct {
		Services map[string]struct {
			Environment any `yaml:"environment"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil || len(file.Services) != 1 {
		t.Fatalf("%d services, %v", len(file.Services), err)
	}
	for service := range maps.Values(file.Services) {
		switch list := service.Environment.(type) {
		case []any:
			for _, one := range list {
				environ = append(environ, fmt.Sprint(one))
			}
		case map[string]any:
			for name, value := range list {
				environ = append(environ, fmt.Sprintf("%s=%v", name, value))
			}
		}
	}
	return environ
}

// loadVersion loads a file that another product was configured with: a YAML file as its default
// one, or the environment of a compose file.
func loadVersion(t *testing.T, name, defaultFile string) (*config.Config, error) {
	t.Helper()
	content := check.Value(os.ReadFile(filepath.Join("testdata", "eventstoredb", name))).Must(t)
	in := input{files: map[string]string{defaultFile: string(content)}}
	if strings.HasSuffix(name, ".yaml") {
		in = input{env: environmentOf(t, content)}
	}
	return load(in)
}

const (
	eventStoreFile = "/etc/eventstore/eventstore.conf"
	kurrentFile    = "/etc/kurrentdb/kurrentdb.conf"
)

// TestOtherVersionsStart: configurations of EventStoreDB 5 to 23 and KurrentDB 25 start unchanged.
// What has no effect is named in one line.
func TestOtherVersionsStart(t *testing.T) {
	none := func(names ...string) (lines []string) { return names }
	cases := []struct {
		file    string
		options map[string]string // that must have these values
		passed  []string          // the options and sections without effect
	}{
		{"v5-single.conf", map[string]string{"NodePort": "2113", "ReplicationPort": "1112", "RunProjections": "All", "Db": "/var/lib/eventstore"}, none(
			"WorkerThreads", "SkipIndexScanOnReads", "StructuredLog", "DisableFirstLevelHttpAuthorization", "MinFlushDelayMs", "CachedChunks", "ChunksCacheSize",
			"IndexCacheDepth", "HashCollisionReadLimit", "ReaderThreadsCount", "OptimizeIndexMerge", "BetterOrdering", "NodeTcpPort", "IntHttpPrefixes",
			"ExtHttpPrefixes", "AddInterfacePrefixes")},
		{"v5-cluster.conf", map[string]string{"NodeHostAdvertiseAs": "node1.example.com", "ClusterSize": "3", "NodePortAdvertiseAs": "2113"}, none(
			"CommitCount", "GossipPortAdvertiseAs", "PrepareCount", "GossipAllowedDifferenceMs", "NodeTcpPort", "ReplicationHeartbeatTimeout",
			"ReplicationHeartbeatInterval", "NodeHeartbeatTimeout", "NodeHeartbeatInterval", "ConnectionPendingSendBytesThreshold",
			"ConnectionQueueSizeThreshold", "IntSecureTcpPort", "ExtSecureTcpPort")},
		{"v5-compose.yaml", map[string]string{"NodePort": "2113", "MemDb": "true", "StatsPeriodSec": "2400"}, none("NodeTcpPort", "AddInterfacePrefixes")},
		{"v20-cluster.conf", map[string]string{"ReplicationHostAdvertiseAs": "node1.internal.example.com", "ClusterDns": "nodes.example.com"}, none(
			"ReaderThreadsCount", "NodeTcpPort", "EnableExternalTcp", "DisableExternalTcpTls", "DisableInternalTcpTls")},
		{"v20-compose.yaml", map[string]string{"GossipSeed": "172.30.240.12:2113,172.30.240.13:2113", "AdvertiseNodePortToClientAs": "2111"},
			none("AdvertiseTcpPortToClientAs", "EnableExternalTcp")},
		{"v23-single.conf", map[string]string{"Insecure": "true", "NodeIp": "0.0.0.0", "ScavengeBackendPageSize": "16"}, none(
			"TelemetryOptout", "LogConfig", "InitializationThreads", "ScavengeHashUsersCacheCapacity", "IndexCacheSize", "ReduceFileCachePressure", "DbLogFormat",
			"NodeTcpPort", "EnableExternalTcp", "ReplicationHeartbeatTimeout", "ReplicationHeartbeatInterval", "NodeHeartbeatTimeout", "NodeHeartbeatInterval")},
		{"v23-compose.yaml", map[string]string{"Insecure": "true", "MaxAppendSize": "4194304"}, none("Plugins", "TelemetryOptout", "DbLogFormat")},
		{"v25-cluster.conf", map[string]string{"GossipSeed": "node2.example.com:2113,node3.example.com:2113", "StatsPeriodSec": "60"}, none(
			"Licensing", "AutoScavenge", "Connectors", "SecondaryIndexing", "UserCertificates", "OtlpExporter", "Logs", "TcpPlugin", "EncryptionAtRest",
			"MaxAppendEventSize")},
		{"v25-compose.yaml", map[string]string{"Insecure": "true", "NodeIp": "0.0.0.0"}, none("LICENSING", "AUTO_SCAVENGE", "CONNECTORS", "SecondaryIndexing")},
	}
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			file := eventStoreFile
			if strings.HasPrefix(c.file, "v25") {
				file = kurrentFile
			}
			got := check.Value(loadVersion(t, c.file, file)).Must(t)
			for name, want := range c.options {
				check.Equal(t, value(t, got, name).Value, want, name)
			}
			var passed []string
			for _, line := range got.Warnings() {
				if list, ok := strings.CutPrefix(line, "set, but without effect here: "); ok {
					for one := range strings.SplitSeq(list, "), ") {
						name, _, _ := strings.Cut(one, " (")
						passed = append(passed, name)
					}
				}
			}
			slices.Sort(passed)
			slices.Sort(c.passed)
			check.Slice(t, passed, c.passed, "without effect are")
		})
	}
}

// TestOtherVersionsSeeds: the port of gossip of version 5 stands for the port between nodes.
func TestOtherVersionsSeeds(t *testing.T) {
	c := check.Value(loadVersion(t, "v5-cluster.conf", eventStoreFile)).Must(t)
	check.Slice(t, c.Seeds(), []string{"10.0.0.2:1112", "10.0.0.3:1112"})
}

// TestOtherVersionsRefused: a start never believes to have a protection that is missing.
func TestOtherVersionsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		in   input
		want string
	}{
		"encryption in a file": {input{files: map[string]string{kurrentFile: "EncryptionAtRest:\n  Enabled: true\n  Encryption: x"}},
			"files are not encrypted by the server: EncryptionAtRest:Enabled (/etc/kurrentdb/kurrentdb.conf line 2) must be false"},
		"encryption by a variable": {input{env: []string{"KURRENTDB__ENCRYPTION_AT_REST__ENABLED=true"}},
			"files are not encrypted by the server: ENCRYPTION_AT_REST:ENABLED (KURRENTDB__ENCRYPTION_AT_REST__ENABLED) must be false"},
		"transform": {input{files: map[string]string{kurrentFile: "Transform: aes-gcm"}},
			"files are not encrypted by the server: Transform must be identity (Transform: /etc/kurrentdb/kurrentdb.conf line 1)"},
		"any address without TLS": {input{files: map[string]string{eventStoreFile: "# Version 5.\nExtIp: 0.0.0.0"}},
			"no certificate is configured, so plain HTTP is served on loopback addresses only: NodeIp 0.0.0.0 needs DisableHttps=true " +
				"(plain HTTP with authentication, behind a proxy that does TLS) or Insecure=true (neither) (NodeIp: /etc/eventstore/eventstore.conf line 2)"},
		"unknown member": {input{files: map[string]string{kurrentFile: "KurrentDB:\n  NodeProt: 1"}},
			`unknown option "NodeProt" (/etc/kurrentdb/kurrentdb.conf line 2), did you mean NodePort?`},
		"unknown section": {input{env: []string{"KURRENTDB__CONECTORS__ENABLED=true"}},
			`unknown option "CONECTORS:ENABLED" (KURRENTDB__CONECTORS__ENABLED)`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(c.in)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	if _, err := load(input{files: map[string]string{kurrentFile: "Foo: {Bar: 1}\nAllowUnknownOptions: true"}}); err != nil {
		t.Error(err)
	}
	if _, err := config.Load(nil, nil, func(string) ([]byte, error) { return nil, fs.ErrPermission }); err == nil {
		t.Error("a file that cannot be read was passed over")
	}
}
