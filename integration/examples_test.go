package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// installLimit is how long the packages of an example may take to come.
const installLimit = 45 * time.Second

// What the examples print.
const (
	goPrints = `appended 0 OrderPlaced
appended 1 OrderPaid
appended 2 OrderPaid
a second payment is refused
followed OrderPlaced: 0 of 30 is paid
followed OrderPaid: 12 of 30 is paid
followed OrderPaid: 30 of 30 is paid
worked on 0 OrderPlaced
worked on 1 OrderPaid
worked on 2 OrderPaid
`
	pythonPrints = `read 0 OrderPlaced {'total': 30}
read 1 OrderPaid {'amount': 12}
another writer was here: the last event is 1
followed OrderPlaced paid so far: 0
followed OrderPaid paid so far: 12
followed OrderPaid paid so far: 30
`
	nodePrints = `read 0 OrderPlaced {"total":30}
read 1 OrderPaid {"amount":12}
another writer was here: the last event is 1
followed OrderPlaced paid so far: 0
followed OrderPaid paid so far: 12
followed OrderPaid paid so far: 30
worked on 0 OrderPlaced
worked on 1 OrderPaid
worked on 2 OrderPaid
`
)

// examplePath returns the path of a file of the examples.
func examplePath(t *testing.T, name string) string {
	t.Helper()
	root := check.Value(testkit.Root()).Must(t)
	return filepath.Join(root, "examples", name)
}

// needRuntime skips the test of an example whose runtime is not installed.
func needRuntime(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if err := exec.CommandContext(t.Context(), tool, "--version").Run(); err != nil {
			t.Skipf("%s does not run here, the example is not tested: %v", tool, err)
		}
	}
}

// runProgram runs a program, which must print a text.
func runProgram(t *testing.T, dir, want, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleLimit)
	defer cancel()
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.WaitDelay = dir, 5*time.Second
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil || string(out) != want {
		t.Errorf("%s %q: %v\n%s--- want ---\n%s--- printed as errors ---\n%s", name, args, err, out, want, stderr.String())
	}
}

// goExample builds the example in Go and returns its path.
func goExample(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "orders")
	build := exec.CommandContext(t.Context(), testkit.Go(), "build", "-o", program, ".")
	build.Dir = examplePath(t, "go")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestExamples runs the examples in Go and Python against a node.
func TestExamples(t *testing.T) {
	t.Parallel()
	node := testkit.StartNode(t, t.TempDir(), "--mem-db")
	t.Run("go", func(t *testing.T) {
		runProgram(t, t.TempDir(), goPrints, goExample(t), "--nodes", node.URL())
	})
	t.Run("python", func(t *testing.T) {
		needRuntime(t, "python3")
		runProgram(t, t.TempDir(), pythonPrints, "python3", examplePath(t, "python/orders.py"), node.URL())
	})
	node.Stop()
}

// TestExampleNode runs the example with the official client for Node.js against three nodes with
// TLS, if the package of the client comes quickly.
func TestExampleNode(t *testing.T) {
	t.Parallel()
	needRuntime(t, "node", "npm")
	dir := t.TempDir()
	for _, name := range []string{"orders.mjs", "package.json", ".npmrc"} {
		text, err := os.ReadFile(examplePath(t, "node/"+name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		check.Must(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), installLimit)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "install", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund",
		"--fetch-retries=0", "--fetch-timeout=10000")
	install.Dir, install.WaitDelay = dir, time.Second
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("the packages of the example do not come, it is not tested: %v\n%s", err, out)
	}

	dev := testkit.Launch(t, testkit.Command{Args: []string{"dev", "--tls", "--mem-db", "--port", "0"}})
	dev.AwaitOutput("data are in ")
	var nodes []string
	for _, m := range regexp.MustCompile(`(?m)^node\d serves https://(\S+)`).FindAllStringSubmatch(dev.Stdout(), -1) {
		nodes = append(nodes, m[1])
	}
	authority := regexp.MustCompile(`authority in (\S+\.crt)`).FindStringSubmatch(dev.Stdout())
	if len(nodes) != 3 || authority == nil {
		t.Fatalf("nodes %q, authority %q\n%s", nodes, authority, dev.Output())
	}
	runProgram(t, dir, nodePrints, "node", "orders.mjs",
		fmt.Sprintf("kurrentdb://admin:changeit@%s?tlsCaFile=%s", strings.Join(nodes, ","), authority[1]))
	dev.Stop()
}

// composeFile is what matters here of a compose file.
type composeFile struct {
	Services map[string]struct {
		Environment map[string]string `yaml:"environment"`
		Ports       []string          `yaml:"ports"`
	} `yaml:"services"`
}

// TestExampleCluster starts the nodes that the compose file of the examples describes, without
// containers: each has an address of this machine in place of its name. Then it runs the examples.
func TestExampleCluster(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has more than one loopback address from the start")
	}
	text := check.Value(os.ReadFile(examplePath(t, "cluster/compose.yaml"))).Must(t)
	var file composeFile
	check.Must(t, yaml.Unmarshal(text, &file))
	var names []string
	for name := range file.Services {
		names = append(names, name)
	}
	slices.Sort(names)
	check.MustSlice(t, names, []string{"node1", "node2", "node3"}, "services")
	// Other tests have other addresses, so that the ports of the file are free.
	network := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), 1+rand.IntN(254))
	hosts := strings.NewReplacer("node1", network+"1", "node2", network+"2", "node3", network+"3")
	var nodes []*testkit.Process
	var urls []string
	for i, name := range names {
		s := file.Services[name]
		host, port := hosts.Replace(name), fmt.Sprint(2113+i)
		check.Slice(t, s.Ports, []string{"127.0.0.1:" + port + ":2113"}, name, "has the ports")
		if got := s.Environment["STORE_ADVERTISE_HOST_TO_CLIENT_AS"] + ":" + s.Environment["STORE_ADVERTISE_NODE_PORT_TO_CLIENT_AS"]; got != "127.0.0.1:"+port {
			t.Errorf("%s tells clients to come to %s", name, got)
		}
		env := []string{"STORE_NODE_IP=" + host} // In a container it is any address.
		for variable, value := range s.Environment {
			switch variable {
			case "STORE_REPLICATION_IP", "STORE_ADVERTISE_HOST_TO_CLIENT_AS":
				value = host
			case "STORE_ADVERTISE_NODE_PORT_TO_CLIENT_AS":
				value = "2113"
			}
			env = append(env, variable+"="+hosts.Replace(value))
		}
		nodes = append(nodes, testkit.Launch(t, testkit.Command{Args: []string{"node"}, Env: env}))
		urls = append(urls, "http://"+host+":2113")
	}
	for _, n := range nodes {
		n.AwaitServing()
	}
	runProgram(t, t.TempDir(), goPrints, goExample(t), "--nodes", strings.Join(urls, ","))
	for _, n := range nodes {
		n.Stop()
	}
}
