package integration_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// What statistics are in JSON.
var figureKinds = map[string]*regexp.Regexp{
	"int":      regexp.MustCompile(`^\d+$`),
	"number":   regexp.MustCompile(`^-?\d+(\.\d+)?([eE][-+]?\d+)?$`),
	"string":   regexp.MustCompile(`^".*"$`),
	"time":     regexp.MustCompile(`^"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"$`),
	"percent":  regexp.MustCompile(`^"\d+%"$`),
	"duration": regexp.MustCompile(`^"\d\d:\d\d:\d\d\.\d{7}"$`),
	"maybe":    regexp.MustCompile(`^(null|"\d+:\d\d:\d\d:\d\d\.\d{7}")$`), // a duration with days
}

// figureTable is every key that there must be, below the path of its group.
var figureTable = []struct{ group, kind, keys string }{
	{"proc", "time", "startTime"},
	{"proc", "int", "id mem threadsCount"},
	{"proc", "number", "cpu cpuScaled contentionsRate thrownExceptionsRate"},
	{"proc gc", "number", "allocationSpeed fragmentation gen0ItemsCount gen0Size gen1ItemsCount gen1Size gen2ItemsCount gen2Size largeHeapSize timeInGc totalBytesInHeaps"},
	{"proc diskIo", "number", "readBytes writtenBytes readOps writeOps"},
	{"proc tcp", "int", "connections"},
	{"proc tcp", "number", "receivingSpeed sendingSpeed inSend pendingReceived pendingSend receivedBytesSinceLastRun receivedBytesTotal sentBytesSinceLastRun sentBytesTotal"},
	{"proc tcp", "duration", "measureTime"},
	{"sys", "int", "freeMem totalMem"},
	{"sys", "number", "cpu"},
	{"sys loadavg", "number", "1m 5m 15m"},
	{"sys drive *", "number", "availableBytes totalBytes usedBytes"},
	{"sys drive *", "percent", "usage"},
	{"es", "number", "checksum checksumNonFlushed"},
	{"es queue *", "string", "queueName groupName inProgressMessage lastProcessedMessage"},
	{"es queue *", "int", "length lengthCurrentTryPeak lengthLifetimePeak totalItemsProcessed avgItemsPerSecond"},
	{"es queue *", "number", "avgProcessingTime idleTimePercent"},
	{"es queue *", "maybe", "currentIdleTime currentItemProcessingTime"},
	{"es writer", "number", "lastFlushSize lastFlushDelayMs meanFlushSize meanFlushDelayMs maxFlushSize maxFlushDelayMs"},
	{"es writer", "int", "queuedFlushMessages"},
	{"es chunkCheck", "int", "running doneBytes totalBytes damagedChunks"},
	{"es chunkCheck", "string", "lastEnd"},
	{"es readIndex", "number", "cachedRecord notCachedRecord cachedStreamInfo notCachedStreamInfo cachedTransInfo notCachedTransInfo hashCollisions"},
}

// queueNames are the queues that dashboards look for, with the group of each.
var queueNames = map[string]string{
	"MainQueue": "", "MonitoringQueue": "", "StorageWriterQueue": "", "Storage Chaser": "", "Index Committer": "", "Postings Committer": "",
	"StorageReaderQueue #1": "StorageReaderQueue", "Subscriptions": "", "Worker #1": "Workers",
	"PersistentSubscriptions": "",
}

// document is an object of a JSON document with its values as they stand there.
type document map[string]json.RawMessage

func (d document) object(t *testing.T, key string) document {
	t.Helper()
	var below document
	if err := json.Unmarshal(d[key], &below); err != nil {
		t.Fatalf("%s: %v: %.200s", key, err, d[key])
	}
	return below
}

// at returns the objects at a path, of which one part may be an asterisk.
func (d document) at(t *testing.T, path []string) (found []document) {
	t.Helper()
	switch {
	case len(path) == 0:
		return []document{d}
	case path[0] != "*":
		return d.object(t, path[0]).at(t, path[1:])
	}
	for key := range d {
		found = append(found, d.object(t, key).at(t, path[1:])...)
	}
	return found
}

// leaves counts the values of a document.
func (d document) leaves() (n int) {
	for _, value := range d {
		var below document
		if json.Unmarshal(value, &below) == nil && below != nil {
			n += below.leaves()
			continue
		}
		n++
	}
	return n
}

// TestStatistics: /stats has every key with its type.
func TestStatistics(t *testing.T) {
	t.Parallel()
	node := testkit.StartNode(t, t.TempDir())
	fill(t, node, 5, 10)
	check.Must(t, check.Err(node.ReadStream(t.Context(), "filled-0", 0)))
	get := func(path, accept string, status int) testkit.Response {
		t.Helper()
		return must(t, node, testkit.Request{Path: path, Admin: true, Header: map[string]string{"Accept": accept}}, status)
	}
	read := func(path string) (d document) {
		t.Helper()
		answer := get(path, testkit.MediaJSON, http.StatusOK)
		check.Must(t, json.Unmarshal(answer.Body, &d), path)
		if got := answer.Header.Get("Cache-Control") + "; " + answer.Header.Get("Vary"); got != "max-age=1, private; Accept" {
			t.Errorf("%s: Cache-Control and Vary are %s", path, got)
		}
		return d
	}

	all := read("/stats")
	listed := 0
	for _, row := range figureTable {
		objects := all.at(t, strings.Fields(row.group))
		if len(objects) == 0 {
			t.Errorf("there is nothing at %s", row.group)
		}
		for _, d := range objects {
			for key := range strings.FieldsSeq(row.keys) {
				listed++
				if !figureKinds[row.kind].Match(d[key]) {
					t.Errorf("%s %s is %q, want a %s", row.group, key, d[key], row.kind)
				}
			}
		}
	}
	check.Equal(t, all.leaves(), listed, "metrics, and the table has")
	queues := map[string]string{}
	for _, d := range all.at(t, []string{"es", "queue", "*"}) {
		queues[strings.Trim(string(d["queueName"]), `"`)] = strings.Trim(string(d["groupName"]), `"`)
	}
	if !maps.Equal(queues, queueNames) {
		t.Errorf("the queues with their groups are %q, want %q", queues, queueNames)
	}

	flat := read("/stats?group=false")
	check.Equal(t, len(flat), all.leaves(), "metrics, and ... when they are grouped")
	for _, key := range []string{"proc-startTime", "es-queue-Index Committer-length", "es-readIndex-hashCollisions"} {
		if flat[key] == nil {
			t.Errorf("there is no %s", key)
		}
	}
	t.Run("metadata", func(t *testing.T) {
		described := 0
		for key, value := range read("/stats?group=false&metadata=true") {
			wants := key == "proc-mem" || key == "proc-cpu" || strings.HasPrefix(key, "es-writer-")
			var about map[string]any
			has := json.Unmarshal(value, &about) == nil && about != nil
			check.Equal(t, has, wants, key, "is", value)
			if has {
				described++
				if got := strings.Join(slices.Sorted(maps.Keys(about)), " "); got != "category drawChart title value" {
					t.Errorf("%s has %s", key, got)
				}
			}
		}
		check.Equal(t, described, 9, "metrics are described")
	})
	node.Stop()
}

// statisticsWritten waits for the events of a node in its own statistics stream,
// which it cannot write by itself unless it leads.
func (m *member) statisticsWritten() {
	t := m.cluster.t
	t.Helper()
	stream := "$stats-" + m.Host()
	testkit.Eventually(t, settleLimit, func() error {
		entries, err := m.ReadStream(t.Context(), stream, 0)
		if err != nil || len(entries) < 2 {
			return fmt.Errorf("%s has %d events of statistics, %v", m, len(entries), err)
		}
		var flat document
		if err := json.Unmarshal([]byte(entries[1].Data), &flat); err != nil || entries[1].Type != "$statsCollected" {
			t.Fatalf("%s has written a %s: %v %.200s", m, entries[1].Type, err, entries[1].Data)
		}
		for _, key := range []string{"proc-id", "proc-gc-gen0Size", "sys-freeMem", "es-checksum", "es-queue-MainQueue-length"} {
			if flat[key] == nil {
				t.Errorf("%s has written no %s", m, key)
			}
		}
		if got := string(flat["proc-id"]); got != fmt.Sprint(m.process.Pid()) {
			t.Errorf("%s has written the metrics of process %s, and is %d", m, got, m.process.Pid())
		}
		return nil
	})
	var metadata map[string]any
	if err := m.askJSON("/streams/"+stream+"/metadata", &metadata); err != nil || metadata["$maxAge"] != 864000.0 {
		t.Errorf("%s, metadata of its statistics: %v, %v", m, metadata, err)
	}
}

// connection is a follower as /stats/replication lists it.
type connection struct {
	Node     string `json:"subscriptionId"`
	ID       string `json:"connectionId"`
	Endpoint string `json:"subscriptionEndpoint"`
	Sent     int64  `json:"totalBytesSent"`
	Received int64  `json:"totalBytesReceived"`
}

// replicationStatistics demands that the leader lists every other node once, at the address that
// gossip has, with counts that grow, and that the others list no node.
func (c *cluster) replicationStatistics() {
	t := c.t
	t.Helper()
	leader, followers := c.settled()
	var want []string
	for _, f := range followers {
		var view struct {
			Members []struct {
				IP         string `json:"httpEndPointIp"`
				Address    string `json:"internalTcpIp"`
				Port       int    `json:"internalTcpPort"`
				SecurePort int    `json:"internalSecureTcpPort"`
			}
		}
		check.Must(t, leader.askJSON("/gossip", &view))
		for _, g := range view.Members {
			if g.IP == f.host.Addr() {
				want = append(want, fmt.Sprintf("%s:%d", g.Address, max(g.Port, g.SecurePort)))
			}
		}
	}
	slices.Sort(want)
	read := func(m *member) (list []connection) {
		t.Helper()
		check.Must(t, m.askJSON("/stats/replication", &list))
		slices.SortFunc(list, func(a, b connection) int { return strings.Compare(a.Endpoint, b.Endpoint) })
		return list
	}
	var before []connection
	testkit.Eventually(t, settleLimit, func() error {
		before = read(leader)
		var got []string
		for _, one := range before {
			got = append(got, one.Endpoint)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("the leader lists %q, want %q", got, want)
		}
		return nil
	})
	leader.fill("replicated", 20)
	testkit.Eventually(t, settleLimit, func() error {
		for i, one := range read(leader) {
			if one.Node == "" || one.ID == "" || one.Endpoint != before[i].Endpoint {
				t.Fatalf("%+v was %+v", one, before[i])
			}
			if one.Sent < before[i].Sent+20*32<<10 || one.Received <= before[i].Received {
				return fmt.Errorf("%+v was %+v", one, before[i])
			}
		}
		return nil
	})
	for _, f := range followers {
		answer, err := f.ask(testkit.Request{Path: "/stats/replication", Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON}})
		if err != nil || string(answer.Body) != "[]" {
			t.Errorf("%s lists %s, %v", f, answer, err)
		}
	}
}

// statisticsPeriod is how often the nodes of a test write theirs.
const statisticsPeriod = time.Second

// TestLongClusterStatistics looks at what the nodes of a cluster say of themselves.
func TestLongClusterStatistics(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	c := newCluster(t, clusterOptions{
		hosts: 4, tls: ours.client(), security: ours.options,
		options: []string{
			"--write-stats-to-db", "--stats-period-sec", fmt.Sprint(int(statisticsPeriod.Seconds())),
			"--log-console-format", "Json", "--log-level", "Verbose", "--log-http-requests",
			"--run-projections", "System", "--start-standard-projections",
		},
	})
	c.members[3].options = []string{"--read-only-replica"}
	for _, m := range c.members {
		m.start()
	}
	c.settled()
	t.Run("replication", func(t *testing.T) {
		c.in(t)
		c.replicationStatistics()
	})
	t.Run("streams", func(t *testing.T) {
		c.in(t)
		for _, m := range c.members {
			m.statisticsWritten()
		}
	})
	t.Run("replication under another leader", func(t *testing.T) {
		c.in(t)
		leader, followers := c.settled()
		leader.order("/admin/node/resign")
		testkit.Eventually(t, settleLimit, func() error {
			if now, _ := c.settled(); now == leader {
				return fmt.Errorf("%s still leads", leader)
			}
			return nil
		})
		followers[0].stop()
		c.settled()
		followers[0].start()
		c.replicationStatistics()
	})
	leader, _ := c.settled()
	l := c.startLoad(seed(t), 4, loadPatience)
	l.more(t, 200)
	for _, m := range c.members {
		check.NoError(t, check.Err(m.ReadStream(t.Context(), "replicated", 0)))
		check.NoError(t, m.refuses("admin", "guess"))
	}
	l.finish(t)
	g := newGroup(t, leader.Client, "replicated", "metrics", settings{})
	g.ack(g.take(3).ids()...)
	scrapes := map[*member]*scrape{}
	for _, m := range c.members {
		scrapes[m] = m.scrape()
	}
	t.Run("metrics", func(t *testing.T) {
		checkMetrics(t, scrapes, leader)
		leader.openMetrics(t)
	})
	t.Run("dashboard", func(t *testing.T) { checkDashboard(t, scrapes) })
	t.Run("page", func(t *testing.T) { checkMetricsPage(t, scrapes) })
	t.Run("shutdown one after the other", func(t *testing.T) {
		c.in(t)
		c.shutdownByRequest()
	})
}

// shutdownByRequest ends all nodes, the leader first, and looks at what the last
// one still tells when it is alone.
func (c *cluster) shutdownByRequest() {
	t := c.t
	leader, others := c.settled()
	for i, m := range append([]*member{leader}, others...) {
		if i == len(others) {
			for _, path := range []string{"/info", "/info/options", "/stats", "/stats/replication", "/metrics", "/gossip", "/ping", "/admin/login", "/admin/cluster/members", "/streams/replicated"} {
				must(t, m, testkit.Request{Path: path, Admin: true}, http.StatusOK)
			}
			testkit.Eventually(t, settleLimit, func() error { return m.health("/health/ready", http.StatusServiceUnavailable) })
		}
		m.order("/admin/shutdown")
		exited(t, m.process, 0)
		m.loggedJSON()
	}
}
