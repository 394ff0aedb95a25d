package integration_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

const readmeAddress = "127.0.0.1:2113"

// readmeAddresses are those of a cluster for development.
var readmeAddresses = []string{readmeAddress, "127.0.0.1:2114", "127.0.0.1:2115"}

// example is one script of the README and what it must print.
type example struct {
	line    int
	section string // the heading above it
	cluster bool   // it is for a cluster and not for one node
	script  string
	want    []string
}

const (
	readmePage     = "README.md"
	clusterPage    = "docs/cluster.md"
	operationsPage = "docs/operations.md"
	firstStartPage = "docs/first-start.md"
)

// nodePages have examples for one node.
var nodePages = []string{
	readmePage, "docs/streams.md", "docs/tail.md", "docs/index-streams.md", "docs/queries.md", "docs/conditions.md", "docs/waiting.md", "docs/users.md", "docs/watching.md", "docs/subscriptions.md", "docs/projections.md", "docs/scavenge.md",
}

// readExamples finds the blocks of a page: those to execute, and the
// commands of those that are not.
func readExamples(t *testing.T, page string) (examples []example, commands []string) {
	t.Helper()
	root := check.Value(testkit.Root()).Must(t)
	text := check.Value(os.ReadFile(filepath.Join(root, page))).Must(t)
	// The convention itself is explained in a comment.
	comment := regexp.MustCompile(`(?s)<!--.*?-->`)
	plain := comment.ReplaceAllStringFunc(string(text), func(c string) string {
		return strings.Repeat("\n", strings.Count(c, "\n"))
	})
	language, begun, after := "", 0, false // after: the line follows a script
	var block []string
	section := ""
	for i, line := range strings.Split(plain, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && begun == 0:
			language, begun, block = fence, i+1, nil
			if fence == "text" && !after {
				t.Errorf("%s:%d: this output belongs to no script", page, i+1)
			}
		case isFence:
			body := strings.Join(block, "\n")
			switch language {
			case "sh", "sh cluster":
				examples = append(examples, example{line: begun, section: section, cluster: language == "sh cluster", script: body})
			case "text":
				if len(examples) > 0 {
					examples[len(examples)-1].want = block
				}
			case "bash":
				commands = append(commands, block...)
			}
			after, begun = strings.HasPrefix(language, "sh"), 0
		case begun > 0:
			block = append(block, line)
		default:
			after = false
			if title, ok := strings.CutPrefix(line, "## "); ok {
				section = title
			}
		}
	}
	if len(examples) == 0 || begun != 0 {
		t.Fatalf("%s: %d examples, and the block of line %d is open", page, len(examples), begun)
	}
	return examples, commands
}

// TestReadmeExamples runs the examples of each page for one node as they stand, in order, against a
// fresh node.
func TestReadmeExamples(t *testing.T) {
	t.Parallel()
	testkit.NeedTool(t, "curl")
	testkit.NeedTool(t, "bash")
	path := pathWithAnnals(t)
	for _, page := range nodePages {
		t.Run(page, func(t *testing.T) {
			node := testkit.StartNode(t, t.TempDir(), "--run-projections=All")
			runExamples(t, page, false, path, strings.NewReplacer(readmeAddress, node.Host()))
			node.Stop()
		})
	}
}

// pathWithAnnals returns a search path that has the command annals.
func pathWithAnnals(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	check.Must(t, os.Symlink(testkit.Binary(t), filepath.Join(bin, "annals")))
	return bin + string(os.PathListSeparator) + os.Getenv("PATH")
}

// TestReadmeCluster runs the examples for a cluster as they stand, in order, against a fresh
// cluster of the command in the page. The two pages begin with the same writes, which are repeated.
func TestReadmeCluster(t *testing.T) {
	t.Parallel()
	testkit.NeedTool(t, "curl")
	testkit.NeedTool(t, "bash")
	const start = "go run ./cmd/annals dev"
	if _, commands := readExamples(t, readmePage); !slices.Contains(commands, start) {
		t.Fatalf("README.md does not hold the command %q", start)
	}
	// The option alone keeps the cluster off the ports of a real one.
	dev := testkit.Launch(t, testkit.Command{Args: append(strings.Fields(start)[3:], "--port", "0")})
	dev.AwaitOutput("data are in ")
	served := regexp.MustCompile(`(?m)^node\d serves http://(\S+)`).FindAllStringSubmatch(dev.Stdout(), -1)
	if len(served) != len(readmeAddresses) {
		t.Fatalf("%d nodes\n%s", len(served), dev.Output())
	}
	var replacements []string
	for i, address := range readmeAddresses {
		replacements = append(replacements, address, served[i][1])
	}
	// Where a script counts ports, they are the nodes' too.
	replacements = append(replacements, "2113 2114 2115", strings.Join([]string{portOf(served[0][1]), portOf(served[1][1]), portOf(served[2][1])}, " "))
	for _, page := range []string{readmePage, clusterPage} {
		runExamples(t, page, true, pathWithAnnals(t), strings.NewReplacer(replacements...))
	}
	dev.Stop()
}

func portOf(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// runExamples runs those of a page for a cluster or those for one node, with the addresses
// of the page replaced by real ones.
func runExamples(t *testing.T, page string, cluster bool, path string, addresses *strings.Replacer) {
	t.Helper()
	examples, _ := readExamples(t, page)
	ran := 0
	for _, e := range examples {
		if e.cluster != cluster {
			continue
		}
		ran++
		script := addresses.Replace(e.script)
		out, err := runExample(t, script, path)
		for range 20 {
			if !cluster || !strings.Contains(out, "Server Is Not Ready") && !strings.Contains(out, "HTTP/1.1 500") {
				break
			}
			// A leader is replaced at any time on a busy machine. The page says what to do then.
			t.Logf("%s:%d: a leader was being replaced, once more", page, e.line)
			out, err = runExample(t, script, path)
		}
		if err != nil {
			t.Errorf("%s:%d: %v\n%s\n--- printed ---\n%s", page, e.line, err, script, out)
			continue
		}
		if missing := e.missing(out, addresses); missing != "" {
			t.Errorf("%s:%d: %q does not occur, or not in this order, in what this prints:\n%s\n--- printed ---\n%s", page, e.line, missing, script, out)
		}
	}
	if ran == 0 {
		t.Errorf("%s has no such examples", page)
	}
}

// missing is the first line that a script must print, and has not printed where it belongs.
func (e *example) missing(out string, addresses *strings.Replacer) string {
	rest := strings.ToLower(out)
	for _, want := range e.want {
		if addresses != nil {
			want = addresses.Replace(want)
		}
		_, after, found := strings.Cut(rest, strings.ToLower(want))
		if !found {
			return want
		}
		rest = after
	}
	return ""
}

// runExample runs a script, and returns what it printed.
func runExample(t *testing.T, script, path string) (printed string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleLimit)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", script)
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "PATH="+path)
	command.WaitDelay = 5 * time.Second
	out, err := command.CombinedOutput()
	return string(out), err
}

// TestReadmeCommands holds the page to its two promises of one command each: the
// one that builds and starts a node, and the one that runs all tests.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	_, commands := readExamples(t, readmePage)
	has := map[string]bool{}
	for _, c := range commands {
		has[c] = true
	}
	root := check.Value(testkit.Root()).Must(t)

	t.Run("start", func(t *testing.T) {
		const start = "go run ./cmd/annals node"
		if !has[start] {
			t.Fatalf("README.md does not hold the command %q", start)
		}
		// The page does not say how long a build takes on a busy machine. A program that runs
		// twice is linked once, and packages of the tests' build are not compiled again.
		flags := append(strings.Fields(os.Getenv("GOFLAGS")), testkit.BuildTags()...)
		env := []string{"CGO_ENABLED=0", "GOFLAGS=" + strings.Join(flags, " ")}
		words := strings.Fields(start)
		build := exec.CommandContext(t.Context(), testkit.Go(), append(slices.Clone(words[1:len(words)-1]), "version")...)
		build.Dir, build.Env = root, append(os.Environ(), env...)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		// The environment alone keeps the node off the port and the folder of a real one.
		dir := t.TempDir()
		p := testkit.Launch(t, testkit.Command{
			Path: testkit.Go(), Args: words[1:], Dir: root, Env: append(env, "STORE_NODE_PORT=0", "STORE_DB="+dir),
		})
		p.AwaitServing()
		must(t, p, testkit.Request{Path: "/ping"}, 200)
		// The Go tool waits for the program that it runs. Its own exit code only says that it was
		// interrupted.
		p.SignalGroup(syscall.SIGINT)
		p.Wait(settleLimit)
		if !strings.HasSuffix(strings.TrimSpace(p.Stderr()), "annals: stopped") {
			t.Errorf("the interrupt did not end the node in order\n%s", p.Output())
		}
	})

	t.Run("test", func(t *testing.T) {
		const test = "make test"
		if !has[test] {
			t.Fatalf("README.md does not hold the command %q", test)
		}
		testkit.NeedTool(t, "make")
		// Running it would run this test again; what it would do is enough.
		command := exec.Command("make", "-n", "test")
		command.Dir = root
		out, err := command.CombinedOutput()
		for _, part := range []string{
			`(?m)^.*/bin/gotest .*-skip '\^TestLong' .* \./\.\.\.; `,
			`(?m)^\(cd integration/ui && exec .*/bin/gotest .*-skip '\^TestLong' \.\) & `,
		} {
			if err != nil || !regexp.MustCompile(part).Match(out) {
				t.Errorf("%s: %v\n%s", part, err, out)
			}
		}
	})
}
