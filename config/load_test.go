package config_test

import (
	"io/fs"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
)

// input is what a test gives to Load.
type input struct {
	args  []string
	env   []string
	files map[string]string
}

func (in input) readFile(name string) ([]byte, error) {
	content, ok := in.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return []byte(content), nil
}

func load(in input) (*config.Config, error) { return config.Load(in.args, in.env, in.readFile) }

func yamlFile(lines ...string) map[string]string {
	return map[string]string{"/etc/annals/annals.conf": strings.Join(lines, "\n")}
}

func mustLoad(t *testing.T, in input) *config.Config {
	t.Helper()
	c := check.Value(load(in)).Must(t, "load")
	return c
}

func value(t *testing.T, c *config.Config, name string) config.Value {
	t.Helper()
	for _, v := range c.Values() {
		if v.Name == name {
			return v
		}
	}
	t.Fatalf("no option %s", name)
	return config.Value{}
}

func TestLoadValues(t *testing.T) {
	cases := []struct {
		name   string
		in     input
		option string
		value  string
		source string
	}{
		{"default", input{}, "ScavengeHistoryMaxAge", "30", "<DEFAULT>"},
		{"default flag off", input{}, "Insecure", "False", "<DEFAULT>"},
		{"default flag on", input{}, "AllowAnonymousStreamAccess", "True", "<DEFAULT>"},
		{"default list", input{}, "GossipSeed", "", "<DEFAULT>"},
		{"file", input{files: yamlFile("ScavengeHistoryMaxAge: 7")}, "ScavengeHistoryMaxAge", "7", "Yaml"},
		{"environment over file", input{env: []string{"EVENTSTORE_SCAVENGE_HISTORY_MAX_AGE=8"}, files: yamlFile("ScavengeHistoryMaxAge: 7")},
			"ScavengeHistoryMaxAge", "8", "Environment Variables"},
		{"own prefix over EventStoreDB's", input{env: []string{"STORE_SCAVENGE_HISTORY_MAX_AGE=9", "EVENTSTORE_SCAVENGE_HISTORY_MAX_AGE=8"}},
			"ScavengeHistoryMaxAge", "9", "Environment Variables"},
		{"own prefix over EventStoreDB's, other order", input{env: []string{"EVENTSTORE_SCAVENGE_HISTORY_MAX_AGE=8", "STORE_SCAVENGE_HISTORY_MAX_AGE=9"}},
			"ScavengeHistoryMaxAge", "9", "Environment Variables"},
		{"command line over environment", input{args: []string{"--scavenge-history-max-age", "10"}, env: []string{"STORE_SCAVENGE_HISTORY_MAX_AGE=9"}},
			"ScavengeHistoryMaxAge", "10", "Command Line"},
		{"the later argument wins", input{args: []string{"--node-port", "1", "--node-port", "2"}}, "NodePort", "2", "Command Line"},
		{"empty variable is not set", input{env: []string{"STORE_NODE_PORT="}}, "NodePort", "2113", "<DEFAULT>"},
		{"other variables are left alone", input{env: []string{"HOME=/root", "RESTORE_NODE_PORT=1"}}, "NodePort", "2113", "<DEFAULT>"},
		{"prefix in lower case", input{env: []string{"store_node_port=1"}}, "NodePort", "1", "Environment Variables"},
		{"variable without separators", input{env: []string{"STORE_NODEPORT=1"}}, "NodePort", "1", "Environment Variables"},
		{"equals sign in the value", input{env: []string{"STORE_DB=a=b"}}, "Db", "a=b", "Environment Variables"},

		{"pascal case", input{args: []string{"--NodePort=1"}}, "NodePort", "1", "Command Line"},
		{"single dash", input{args: []string{"-node-port", "1"}}, "NodePort", "1", "Command Line"},
		{"single dash, equals", input{args: []string{"-NODE_PORT=1"}}, "NodePort", "1", "Command Line"},
		{"bare flag", input{args: []string{"--mem-db"}}, "MemDb", "true", "Command Line"},
		{"flag before another option", input{args: []string{"--mem-db", "--node-port", "1"}}, "MemDb", "true", "Command Line"},
		{"flag with value", input{args: []string{"--mem-db", "False"}}, "MemDb", "False", "Command Line"},
		{"flag with value as typed", input{args: []string{"--mem-db=tRuE"}}, "MemDb", "tRuE", "Command Line"},
		{"flag plus", input{args: []string{"--mem-db+"}}, "MemDb", "true", "Command Line"},
		{"flag minus", input{args: []string{"--use-index-bloom-filters-"}}, "UseIndexBloomFilters", "false", "Command Line"},
		{"negative number", input{args: []string{"--max-truncation", "-1"}}, "MaxTruncation", "-1", "Command Line"},
		{"empty text", input{args: []string{"--cluster-dns=x", "--log="}}, "Log", "", "Command Line"},
		{"deprecated synonym", input{args: []string{"--http-port", "5"}}, "NodePort", "5", "Command Line"},
		{"a name wins over its synonym", input{args: []string{"--node-port", "1", "--http-port", "5"}}, "NodePort", "1", "Command Line"},
		{"a synonym in a stronger source", input{args: []string{"--http-port", "5"}, files: yamlFile("NodePort: 6")}, "NodePort", "5", "Command Line"},
		{"enumeration in any case", input{args: []string{"--log-level", "DEBUG"}}, "LogLevel", "DEBUG", "Command Line"},
		{"fraction where EventStoreDB has one", input{files: yamlFile("MinFlushDelayMs: 0.5")}, "MinFlushDelayMs", "0.5", "Yaml"},
		{"admin password", input{env: []string{"STORE_DEFAULT_ADMIN_PASSWORD=secret"}}, "DefaultAdminPassword", "********", "Environment Variables"},
		{"admin password by default", input{}, "DefaultAdminPassword", "********", "<DEFAULT>"},
		{"unset secret", input{}, "CertificatePassword", "********", "<DEFAULT>"},

		{"file with a document start", input{files: yamlFile("---", "# comment", "NodePort: 3")}, "NodePort", "3", "Yaml"},
		{"file with quotes", input{files: yamlFile(`NodePort: "3"`)}, "NodePort", "3", "Yaml"},
		{"file with another spelling", input{files: yamlFile("node-port: 3")}, "NodePort", "3", "Yaml"},
		{"flag in a file", input{files: yamlFile("MemDb: TRUE")}, "MemDb", "TRUE", "Yaml"},
		{"null is unset", input{files: yamlFile("NodePort: ~", "Log: null", "Db:")}, "NodePort", "2113", "<DEFAULT>"},
		{"sequence", input{files: yamlFile("GossipSeed:", "  - 'a:1'", "  - b:2"), args: []string{"--gossip-seed", "c:1"}}, "GossipSeed", "c:1", "Command Line"},
		{"sequence, joined", input{files: yamlFile("GossipSeed:", "  - 'a:1'", "  - b:2"), args: []string{"--cluster-size=3"}}, "GossipSeed", "a:1,b:2", "Yaml"},
		{"sequence of one", input{files: yamlFile("GossipSeed: [a:1]")}, "GossipSeed", "a:1", "Yaml"},
		{"empty file", input{files: yamlFile("")}, "NodePort", "2113", "<DEFAULT>"},
		{"comments only", input{files: yamlFile("# nothing", "---")}, "NodePort", "2113", "<DEFAULT>"},
		{"named file", input{args: []string{"--config", "my.yaml"}, files: map[string]string{"my.yaml": "NodePort: 4", "/etc/annals/annals.conf": "NodePort: 5"}},
			"NodePort", "4", "Yaml"},
		{"file named by the environment", input{env: []string{"STORE_CONFIG=my.yaml"}, files: map[string]string{"my.yaml": "NodePort: 4"}}, "NodePort", "4", "Yaml"},
		{"EventStoreDB's file", input{files: map[string]string{"/etc/eventstore/eventstore.conf": "NodePort: 6"}}, "NodePort", "6", "Yaml"},
		{"our file before EventStoreDB's", input{files: map[string]string{"/etc/eventstore/eventstore.conf": "NodePort: 6", "/etc/annals/annals.conf": "NodePort: 5"}},
			"NodePort", "5", "Yaml"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := value(t, mustLoad(t, c.in), c.option)
			if got.Value != c.value || got.Source != c.source {
				t.Errorf("%s = %q from %s, want %q from %s", c.option, got.Value, got.Source, c.value, c.source)
			}
		})
	}
}

func TestLoadTypes(t *testing.T) {
	c := mustLoad(t, input{
		args: []string{"--log-level=warning", "--raft-log-store", "wal", "--node-ip", "::1", "--gossip-interval-ms", "70", "--scavenge-history-max-age", "2",
			"--follower-writes=FORWARD", "--max-append-size", "5000"},
		env:   []string{"STORE_GOSSIP_SEED= a:1 ,", "STORE_STATS_PERIOD_SEC=3", "STORE_DEFAULT_OPS_PASSWORD=pw"},
		files: yamlFile("Db: /srv/db", "MemDb: true"),
	})
	type view struct {
		level        config.LogLevel
		store        config.LogStore
		writes       config.FollowerWriteMode
		ip           netip.Addr
		addr, db, ix string
		interval     time.Duration
		age, stats   time.Duration
		size         int64
		mem          bool
		seed, ops    string
		file         string
	}
	got := view{c.LogLevel, c.RaftLogStore, c.FollowerWrites, c.NodeIp, c.ListenAddr(), c.Db, c.Index, c.GossipInterval,
		c.ScavengeHistoryMaxAge, c.StatsPeriod, c.MaxAppendSize, c.MemDb, strings.Join(c.GossipSeed, "|"), c.DefaultOpsPassword, c.File()}
	want := view{config.LogLevelWarning, config.LogStoreWal, config.FollowerWritesForward, netip.MustParseAddr("::1"), "[::1]:2113",
		"/srv/db", "/srv/db/index", 70 * time.Millisecond, 48 * time.Hour, 3 * time.Second, 5000, true, "a:1", "pw", "/etc/annals/annals.conf"}
	check.Equal(t, got, want)
}

func TestLoadRefuses(t *testing.T) {
	cases := []struct {
		name string
		in   input
		want []string // one line each
	}{
		{"unknown argument with a near name", input{args: []string{"--cluster-sise", "1"}}, []string{`unknown option "cluster-sise" (Command Line), did you mean --cluster-size?`}},
		{"unknown letter", input{args: []string{"-v"}}, []string{`unknown option "v" (Command Line)`}},
		{"unknown argument five edits away", input{args: []string{"--xxxxxhttpport=1"}}, []string{`unknown option "xxxxxhttpport" (Command Line), did you mean --node-port?`}},
		{"unknown argument far away", input{args: []string{"--completely-different-thing"}}, []string{`unknown option "completely-different-thing" (Command Line)`}},
		{"unknown variable", input{env: []string{"STORE_NODE_PROT=1"}}, []string{`unknown option "NODE_PROT" (STORE_NODE_PROT), did you mean STORE_NODE_PORT?`}},
		{"unknown key", input{files: yamlFile("NodePortt: 1")}, []string{`unknown option "NodePortt" (/etc/annals/annals.conf line 1), did you mean NodePort?`}},
		{"unknown everywhere, a line each", input{args: []string{"--nodeporta=1"}, env: []string{"EVENTSTORE_NODEPORTB=1"}, files: yamlFile("NodePortC: 1")}, []string{
			`unknown option "nodeporta" (Command Line), did you mean --node-port?`,
			`unknown option "NODEPORTB" (EVENTSTORE_NODEPORTB), did you mean EVENTSTORE_NODE_PORT?`,
			`unknown option "NodePortC" (/etc/annals/annals.conf line 1), did you mean NodePort?`}},
		{"stray word", input{args: []string{"start"}}, []string{`unexpected argument "start"`}},
		{"stray word after a flag", input{args: []string{"--mem-db", "yes"}}, []string{`unexpected argument "yes"`}},
		{"two dashes", input{args: []string{"--"}}, []string{`unexpected argument "--"`}},
		{"no name", input{args: []string{"--=1"}}, []string{`unexpected argument "--=1"`}},
		{"no value", input{args: []string{"--db"}}, []string{`option db (Command Line) needs a value`}},
		{"option in place of a value", input{args: []string{"--db", "--mem-db"}}, []string{`option db (Command Line) needs a value`}},
		{"sign on what is no flag", input{args: []string{"--db+=x"}}, []string{`unknown option "db+" (Command Line), did you mean --db?`}},
		{"not a number", input{args: []string{"--node-port", "x"}}, []string{`option node-port (Command Line): "x" is not a whole number`}},
		{"out of range", input{env: []string{"STORE_NODE_PORT=65536"}}, []string{`option NODE_PORT (STORE_NODE_PORT): 65536 is not between 0 and 65535`}},
		{"not a flag value", input{files: yamlFile("MemDb: yes")}, []string{`option MemDb (/etc/annals/annals.conf line 1): "yes" is neither true nor false`}},
		{"not one of", input{args: []string{"--log-console-format=xml"}}, []string{`option log-console-format (Command Line): "xml" is none of Plain, Json`}},
		{"nearly one of", input{env: []string{"KURRENTDB_RUN_PROJECTIONS=Sytsem"}},
			[]string{`option RUN_PROJECTIONS (KURRENTDB_RUN_PROJECTIONS): "Sytsem" is none of None, System, All, did you mean System?`}},
		{"impossible together", input{files: yamlFile("# A replica.", "ReadOnlyReplica: true", "GossipSeed: a:1"), env: []string{"STORE_CLUSTER_SIZE=1"}},
			[]string{`ReadOnlyReplica needs a cluster: ClusterSize must be greater than 1 (ReadOnlyReplica: /etc/annals/annals.conf line 2, ClusterSize: STORE_CLUSTER_SIZE)`}},
		{"unknown section", input{files: yamlFile("NodePort: 1", "Projctions:", "  Enabled: true")},
			[]string{`unknown option "Projctions:Enabled" (/etc/annals/annals.conf line 3)`}},
		{"not an address", input{args: []string{"--node-ip=localhost"}}, []string{`option node-ip (Command Line): "localhost" is not an IP address`}},
		{"wrong value of an ignored option", input{args: []string{"--reader-threads-count=many"}}, []string{`option reader-threads-count (Command Line): "many" is not a whole number`}},
		{"list with semicolon", input{args: []string{"--gossip-seed=a:1;b:2"}}, []string{`option gossip-seed (Command Line): "a:1;b:2" is not separated by commas`}},
		{"list with tab", input{args: []string{"--gossip-seed=a:1\tb:2"}}, []string{`option gossip-seed (Command Line): "a:1\tb:2" is not separated by commas`}},
		{"seed without port", input{args: []string{"--gossip-seed=a"}}, []string{`option gossip-seed (Command Line): "a" is not of the form host:port`}},
		{"password on the command line", input{args: []string{"--default-admin-password=x"}}, []string{`DefaultAdminPassword can only be set by the environment variable STORE_DEFAULT_ADMIN_PASSWORD`}},
		{"password in the file", input{files: yamlFile("DefaultOpsPassword: x")}, []string{`DefaultOpsPassword can only be set by the environment variable STORE_DEFAULT_OPS_PASSWORD`}},
		{"password in a file beside one in the environment", input{env: []string{"STORE_DEFAULT_OPS_PASSWORD=y"}, files: yamlFile("DefaultOpsPassword: x")},
			[]string{`DefaultOpsPassword can only be set by the environment variable STORE_DEFAULT_OPS_PASSWORD`}},
		{"empty password", input{env: []string{"STORE_DEFAULT_ADMIN_PASSWORD="}}, []string{`STORE_DEFAULT_ADMIN_PASSWORD must not be empty`}},
		{"empty password of EventStoreDB", input{env: []string{"EVENTSTORE_DEFAULT_OPS_PASSWORD="}}, []string{`EVENTSTORE_DEFAULT_OPS_PASSWORD must not be empty`}},
		{"empty password of KurrentDB", input{env: []string{"KURRENTDB_DEFAULT_OPS_PASSWORD="}}, []string{`KURRENTDB_DEFAULT_OPS_PASSWORD must not be empty`}},
		{"file that names a file", input{files: yamlFile("Config: x")}, []string{`Config cannot be set in the configuration file (/etc/annals/annals.conf line 1)`}},

		{"named file missing", input{args: []string{"--config=no.yaml"}}, []string{`configuration file: open no.yaml: file does not exist`}},
		{"duplicate key", input{files: yamlFile("NodePort: 1", "NodePort: 2")}, []string{`configuration file /etc/annals/annals.conf: line 2: duplicate key NodePort, given before as NodePort`}},
		{"duplicate key in other spelling", input{files: yamlFile("NodePort: 1", "node_port: 2")}, []string{`configuration file /etc/annals/annals.conf: line 2: duplicate key node_port, given before as NodePort`}},
		{"nested mapping", input{files: yamlFile("NodePort:", "  a: 1")}, []string{`configuration file /etc/annals/annals.conf: line 1: option NodePort: neither a plain value nor a sequence of such`}},
		{"nested sequence", input{files: yamlFile("GossipSeed: [[a]]")}, []string{`configuration file /etc/annals/annals.conf: line 1: option GossipSeed: an item of the sequence is not a plain value`}},
		{"item with a comma", input{files: yamlFile("GossipSeed: ['a:1,b:2']")}, []string{`configuration file /etc/annals/annals.conf: line 1: option GossipSeed: the item "a:1,b:2" holds a comma`}},
		{"= for :", input{files: yamlFile("Db: /x", "LogLevel=Debug")}, []string{`configuration file /etc/annals/annals.conf: line 2: write Name: value`}},
		{"= for : alone", input{files: yamlFile("LogLevel=Debug")}, []string{`configuration file /etc/annals/annals.conf: line 1: write Name: value`}},
		{"= for : first", input{files: yamlFile("LogLevel=Debug", "Db: /x")}, []string{`configuration file /etc/annals/annals.conf: line 1: write Name: value`}},
		{"not a mapping", input{files: yamlFile("- NodePort")}, []string{`configuration file /etc/annals/annals.conf: line 1: write Name: value`}},
		{"two documents", input{files: yamlFile("NodePort: 1", "---", "NodePort: 2")}, []string{`configuration file /etc/annals/annals.conf: more than one YAML document`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(c.in)
			check.MustFail(t, err, "accepted")
			if want := strings.Join(c.want, "\n"); err.Error() != want {
				t.Errorf("got  %s\nwant %s", err, want)
			}
		})
	}
}

// TestLoadRefusing: a command that decides some options itself refuses them, wherever they are set,
// with its reason in place of what would follow from them. The file of the machine's node is not
// read.
func TestLoadRefusing(t *testing.T) {
	refused := map[string]string{"ClusterSize": "see --nodes", "NodePort": "see --port"}
	machine := map[string]string{"/etc/annals/annals.conf": "NodePort: 1", "/etc/eventstore/eventstore.conf": "{", "my.yaml": "HttpPort: 2", "good.yaml": "MemDb: true"}
	cases := []struct {
		name string
		in   input
		want string // the error, empty: must load
	}{
		{"nothing", input{}, ""},
		{"others", input{args: []string{"--config=good.yaml", "--insecure"}, env: []string{"STORE_FOLLOWER_WRITES=Forward"}}, ""},
		{"command line", input{args: []string{"-clusterSize", "3"}}, "option clusterSize (Command Line) cannot be set here: see --nodes"},
		{"environment", input{env: []string{"EVENTSTORE_CLUSTER_SIZE=3"}}, "option CLUSTER_SIZE (EVENTSTORE_CLUSTER_SIZE) cannot be set here: see --nodes"},
		{"former name in a file", input{args: []string{"--config", "my.yaml"}}, "option HttpPort (my.yaml line 1) cannot be set here: see --port"},
		{"no value of it either", input{args: []string{"--cluster-size=many"}}, "option cluster-size (Command Line) cannot be set here: see --nodes"},
		{"its default", input{args: []string{"--cluster-size=1"}}, "option cluster-size (Command Line) cannot be set here: see --nodes"},
		{"help comes first", input{args: []string{"--cluster-size=3", "--help"}}, ""},
		{"two", input{args: []string{"--node-port=1", "--cluster-size=3"}},
			"option cluster-size (Command Line) cannot be set here: see --nodes\noption node-port (Command Line) cannot be set here: see --port"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.in.files = machine
			got := ""
			if _, err := config.LoadRefusing(c.in.args, c.in.env, c.in.readFile, refused); err != nil {
				got = err.Error()
			}
			check.Equal(t, got, c.want)
		})
	}
}

func TestStartUpChecks(t *testing.T) {
	const atLeastTLS = "no certificate is configured, so plain HTTP is served on loopback addresses only: NodeIp "
	const needs = " needs DisableHttps=true (plain HTTP with authentication, behind a proxy that does TLS) or Insecure=true (neither)"
	cases := []struct {
		name string
		args string
		env  []string
		want string // a line of the error, empty: must start
	}{
		{name: "nothing set"},
		{"cluster of none", "--cluster-size 0", nil, "ClusterSize must be greater than zero"},
		{"negative cluster", "--cluster-size=-3", nil, "ClusterSize must be greater than zero"},
		{"replica without cluster", "--read-only-replica", nil, "ReadOnlyReplica needs a cluster: ClusterSize must be greater than 1"},
		{"one seed", "--gossip-seed a:1", nil, ""},
		{"several seeds without cluster", "--gossip-seed a:1,b:1", nil, "several nodes in GossipSeed need a cluster: ClusterSize must be greater than 1"},
		{"db equals index", "--db x --index ./y/../x", nil, "Db and Index must not be the same folder"},
		{"db begins with tilde", "--db ~/x", nil, `Db "~/x" begins with ~, which only a shell understands`},
		{"empty db", "--db=", nil, "Db must not be empty"},
		{"largest append size", "--max-append-size 16767216", nil, ""},
		{"append size too large", "--max-append-size 16767217", nil, "MaxAppendSize must not exceed 16767216 bytes"},
		{"a disk hangs sooner than a leader is missed", "--disk-hang-timeout-ms 999", nil, "DiskHangTimeoutMs 999 must not be below LeaderElectionTimeoutMs 1000"},
		{"a disk hangs as soon", "--disk-hang-timeout-ms 500 --leader-election-timeout-ms 500", nil, ""},
		{"no threads", "--initialization-threads 0", nil, "option initialization-threads (Command Line): 0 is not between 1 and 2147483647"},
		{"no name to look up", "--cluster-dns=", nil, "DiscoverViaDns needs ClusterDns"},
		{"no name needed", "--cluster-dns= --discover-via-dns-", nil, ""},
		{"other loopback address", "--node-ip 127.0.0.9", nil, ""},
		{"loopback of version 6", "--node-ip ::1", nil, ""},
		{"loopback mapped", "--node-ip ::ffff:127.0.0.1", nil, ""},
		{"any address without certificate", "--node-ip 0.0.0.0", nil, atLeastTLS + "0.0.0.0" + needs},
		{"private address without certificate", "--node-ip 10.0.0.1", nil, atLeastTLS + "10.0.0.1" + needs},
		{"any address behind a proxy", "--node-ip 0.0.0.0 --disable-https", nil, ""},
		{"any address insecure", "--node-ip 0.0.0.0 --insecure", nil, ""},
		{"insecure with a password", "--insecure", []string{"STORE_DEFAULT_ADMIN_PASSWORD=x"}, "DefaultAdminPassword cannot be set together with Insecure: there are no users then (DefaultAdminPassword: STORE_DEFAULT_ADMIN_PASSWORD)"},
		{"insecure with the default as password", "--insecure", []string{"EVENTSTORE_DEFAULT_OPS_PASSWORD=changeit"}, "DefaultOpsPassword cannot be set together with Insecure: there are no users then (DefaultOpsPassword: EVENTSTORE_DEFAULT_OPS_PASSWORD)"},

		{"cluster by name", "--cluster-size 3 --cluster-dns nodes.example", nil, ""},
		{"cluster by the name of nobody", "--cluster-size 3", nil,
			"a cluster needs GossipSeed, or DiscoverViaDns with ClusterDns, for its nodes to find each other"},
		{"cluster by seeds", "--cluster-size 3 --gossip-seed a:1", nil, ""},
		{"replica", "--cluster-size 3 --cluster-dns nodes.example --read-only-replica", nil, ""},
		{"cluster of strangers", "--cluster-size 3 --discover-via-dns-", nil,
			"a cluster needs GossipSeed, or DiscoverViaDns with ClusterDns, for its nodes to find each other"},
		{"cluster without certificate", "--cluster-size 3 --replication-ip 10.0.0.1", nil,
			"no certificate is configured, so nodes connect to each other on loopback addresses only: ReplicationIp 10.0.0.1 needs a certificate (see annals certs) or Insecure=true"},
		{"cluster with certificate", "--cluster-size 3 --gossip-seed a:1 --replication-ip 10.0.0.1 --certificate-file x", nil, ""},
		{"projections", "--run-projections all", nil, ""},
		{"backups", "--backup-to /backups --backup-schedule @daily --backup-keep 7", nil, ""},
		{"backups to a bucket", "--backup-to s3://backups/node1 --backup-s3-endpoint https://store.example:9000", nil, ""},
		{"backups to nowhere", "--backup-schedule @daily", nil, "BackupSchedule needs BackupTo: where the backups go"},
		{"backups to no bucket", "--backup-to s3:///node1", nil, `BackupTo "s3:///node1" names no bucket: it must be of the form s3://bucket/prefix`},
		{"backups elsewhere", "--backup-to ftp://x/y", nil, `BackupTo "ftp://x/y" is neither a folder nor of the form s3://bucket/prefix`},
		{"backups into the data folder", "--db x --backup-to ./x", nil, "BackupTo must not be the folder of Db or Index"},
		{"backups at home", "--backup-to ~/x", nil, `BackupTo "~/x" begins with ~, which only a shell understands`},
		{"an object store for a folder", "--backup-to /x --backup-s3-endpoint http://y", nil, "BackupS3Endpoint needs a BackupTo of the form s3://bucket/prefix"},
		{"an object store with a password", "--backup-to s3://x/y --backup-s3-endpoint http://a:b@y", nil, "BackupS3Endpoint is not of the form https://host:port"},
		{"a negative number of backups", "--backup-to /x --backup-keep=-1", nil, "option backup-keep (Command Line): -1 is not between 0 and 2147483647"},
		{"development", "--dev", nil, ""},
		{"development at any address", "--dev --node-ip 0.0.0.0", nil, ""},
		{"development without users", "--dev --insecure", nil, ""},
		{"development of a cluster", "--dev --cluster-size 3 --gossip-seed a:1", nil,
			"no other node knows the certificate that Dev makes: ClusterSize must be 1 (annals dev runs a cluster for development)"},
		{"development of a cluster with certificates", "--dev --cluster-size 3 --gossip-seed a:1 --certificate-file x", nil, ""},
		{"projections in development", "--dev --run-projections none", nil, ""},
		{"no projections, said so", "--run-projections NONE", nil, ""},
		{"page size in KiB", "--scavenge-backend-page-size 64", nil, ""},
		{"page size in bytes", "--scavenge-backend-page-size 512", nil, ""},
		{"odd page size", "--scavenge-backend-page-size 1000", nil,
			"option scavenge-backend-page-size (Command Line): 1000 is neither a power of two from 512 to 65536 nor one from 1 to 64 in KiB"},
		{"odd page size in KiB", "--scavenge-backend-page-size 511", nil,
			"option scavenge-backend-page-size (Command Line): 511 is neither a power of two from 512 to 65536 nor one from 1 to 64 in KiB"},
		{"page size too large in KiB", "--scavenge-backend-page-size 128", nil,
			"option scavenge-backend-page-size (Command Line): 128 is neither a power of two from 512 to 65536 nor one from 1 to 64 in KiB"},
		{"certificate", "--certificate-file x", nil, ""},
		{"roots", "--trusted-root-certificates-path x", nil, ""},
		{"roots as by default", "--trusted-root-certificates-path /etc/ssl/certs", nil, ""},
		{"certificate store", "--certificate-thumbprint x", nil, "this system has no certificate stores, CertificateFile names a file: CertificateThumbprint must not be set"},
		{"certificate left aside", "--certificate-file x --insecure", nil, ""},
		{"other authentication", "--authentication-type ldaps", nil, "authentication and authorisation plug-ins do not exist: AuthenticationType must be internal"},
		{"certificate store left aside", "--certificate-thumbprint x --insecure", nil, ""},
		{"own authentication", "--authentication-type Internal", nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(input{args: strings.Fields(c.args), env: c.env})
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && err == nil:
				t.Error("accepted")
			case c.want != "" && !strings.Contains("\n"+err.Error()+"\n", "\n"+c.want+"\n"):
				t.Errorf("got  %s\nwant %s", err, c.want)
			}
		})
	}
}

// TestOneLineForOneFault: the default of Index follows from Db, and so would its fault.
func TestOneLineForOneFault(t *testing.T) {
	for args, want := range map[string]string{
		"--db ~/x":           `Db "~/x" begins with ~, which only a shell understands`,
		"--db x --index ~/i": `Index "~/i" begins with ~, which only a shell understands`,
		"--db ~/x --index ~/x/index": `Db "~/x" begins with ~, which only a shell understands` + "\n" +
			`Index "~/x/index" begins with ~, which only a shell understands`,
	} {
		if _, err := load(input{args: strings.Fields(args)}); err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", args, err, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	cases := []struct {
		name string
		in   input
		want []string
	}{
		{"none", input{args: []string{"--node-port=0"}}, nil},
		{"another data folder than that of the file", input{args: []string{"--db=/scratch"}, files: yamlFile("NodePort: 1", "Db: /srv/db")}, []string{"the data folder is /scratch, of the command line, and not /srv/db (/etc/annals/annals.conf line 2): all other options of that file are in force, unless --config names another one"}},
		{"the data folder of the file", input{args: []string{"--db=/srv/db"}, files: yamlFile("Db: /srv/db")}, nil},
		{"synonym, once", input{args: []string{"--http-port=1", "--http-port=2"}}, []string{"option http-port (Command Line) is deprecated, use NodePort"}},
		{"no effect", input{files: yamlFile("ReaderThreadsCount: 4")}, []string{"set, but without effect here: ReaderThreadsCount (/etc/annals/annals.conf line 1)"}},
		{"deprecated without effect", input{env: []string{"STORE_ALWAYS_KEEP_SCAVENGED=true"}}, []string{"AlwaysKeepScavenged is deprecated and has no effect."}},
		{"development", input{args: []string{"--dev"}}, nil},
		{"nothing refused and nothing said", input{args: []string{"--run-projections=none", "--enable-unix-socket=false"}}, nil},
		{"synonym in a weaker source too", input{args: []string{"--node-port=1"}, files: yamlFile("ExtIp: 127.0.0.1")}, []string{"option ExtIp (/etc/annals/annals.conf line 1) is deprecated, use NodeIp"}},
		{"unknown but allowed", input{args: []string{"--allow-unknown-options", "--nodeprt", "5", "--foo-bar-baz-qux"}}, []string{
			`unknown option "nodeprt" (Command Line), did you mean --node-port?`, `unknown option "foo-bar-baz-qux" (Command Line)`}},
		{"unknown, allowed by the file", input{args: []string{"--nodeprt=5"}, files: yamlFile("AllowUnknownOptions: true")}, []string{
			`unknown option "nodeprt" (Command Line), did you mean --node-port?`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := mustLoad(t, c.in).Warnings()
			check.Equal(t, strings.Join(got, "\n"), strings.Join(c.want, "\n"), got, "want", c.want)
		})
	}
}

func TestAskingForAText(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"-?"}, {"--Help"}, {"-help"}, {"--help", "--unknown", "stray", "--config=missing"}} {
		if c, err := load(input{args: args}); err != nil || !c.Help {
			t.Errorf("%v: %v", args, err)
		}
	}
	if c, err := load(input{args: []string{"--version", "stray"}}); err != nil || !c.Version {
		t.Errorf("version: %v", err)
	}
	if c, err := load(input{args: []string{"--what-if"}}); err != nil || !c.WhatIf {
		t.Errorf("what if: %v", err)
	}
	if _, err := load(input{args: []string{"--what-if", "--cluster-size=0"}}); err == nil {
		t.Error("what if: accepted a configuration that cannot start")
	}
}

// TestDev: the options that have another default in development.
func TestDev(t *testing.T) {
	for _, c := range []struct {
		args   string
		mode   config.ProjectionMode
		starts bool
	}{
		{"", config.ProjectionsNone, false},
		{"--dev", config.ProjectionsSystem, true},
		{"--dev --run-projections=None --start-standard-projections=false", config.ProjectionsNone, false},
		{"--dev --run-projections all", config.ProjectionsAll, true},
		{"--run-projections all", config.ProjectionsAll, false},
	} {
		got := mustLoad(t, input{args: strings.Fields(c.args)})
		check.MustEqual(t, got.RunProjections, c.mode, c.args)
		check.Equal(t, got.StartStandardProjections, c.starts, c.args)
		for _, v := range got.Values() {
			if v.Name == "RunProjections" && v.Value != string(c.mode) && !strings.EqualFold(v.Value, string(c.mode)) {
				t.Errorf("%s: %s is shown", c.args, v.Value)
			}
		}
	}
}
