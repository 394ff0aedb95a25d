package client_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/testkit/onenode"
)

const page = "docs/client.md"

// example is a block of Go of the page, and what it must print.
type example struct {
	line int // of its first line
	code string
	want []string
}

// examples finds those of the page.
func examples(t *testing.T, text string) (all []example) {
	t.Helper()
	var block []string
	language, begun := "", 0
	for i, line := range strings.Split(text, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && begun == 0:
			language, begun, block = fence, i+2, nil
		case isFence && language == "go":
			all = append(all, example{line: begun, code: strings.Join(block, "\n") + "\n"})
			begun = 0
		case isFence:
			if language == "text" && len(all) > 0 {
				all[len(all)-1].want = block
			}
			begun = 0
		case begun > 0:
			block = append(block, line)
		}
	}
	if begun != 0 || len(all) < 5 {
		t.Fatalf("%s: %d examples, and the block of line %d is open", page, len(all), begun)
	}
	return all
}

// packages are those that the examples use without importing them.
var packages = []string{"context", "errors", "fmt", "net/http", "net/url", "os", "time"}

// program is one that runs examples one after the other, each in a function of its own.
func program(all []example, address string) string {
	var body, run strings.Builder
	fmt.Fprintf(&run, "func main() {\n"+
		"c, err := client.New(client.Options{Nodes: []string{%q}, Login: url.UserPassword(\"admin\", \"changeit\")})\n"+
		"if err != nil {\npanic(err)\n}\ndefer c.Close()\nctx := context.Background()\n", address)
	for _, e := range all {
		fmt.Fprintf(&run, "fmt.Println(\"--- %d\")\nif err := example%d(ctx, c); err != nil {\nfmt.Println(\"failed:\", err)\nos.Exit(1)\n}\n", e.line, e.line)
		fmt.Fprintf(&body, "func example%d(ctx context.Context, c *client.Client) error {\n//line %s:%d\n%s", e.line, page, e.line, e.code)
		if !strings.HasPrefix(e.code[strings.LastIndexByte(strings.TrimSuffix(e.code, "\n"), '\n')+1:], "return ") {
			body.WriteString("return nil\n")
		}
		body.WriteString("}\n")
	}
	text := run.String() + "}\n" + body.String()
	var b strings.Builder
	b.WriteString("package main\n\nimport (\n")
	for _, p := range packages {
		if regexp.MustCompile(`\b` + filepath.Base(p) + `\.[A-Z]`).MatchString(text) {
			fmt.Fprintf(&b, "%q\n", p)
		}
	}
	b.WriteString("\n\"github.com/annalsdb/annals/client\"\n)\n\n")
	return b.String() + text
}

// TestPage compiles and runs the examples of the page of the client, in a module that requires the
// client and nothing else.
func TestPage(t *testing.T) {
	root, err := testkit.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	at, stop, err := onenode.Start(t.Context(), onenode.Projections)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	all := examples(t, string(text))
	whole, rest := all[0], all[1:]
	if !strings.HasPrefix(whole.code, "package main\n") {
		t.Fatal("the first example is not a whole program")
	}
	const usual = "http://127.0.0.1:2113"
	if !strings.Contains(whole.code, usual) {
		t.Fatalf("the program does not connect to %s", usual)
	}
	module := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example\n\ngo 1.26.0\n\nrequire github.com/annalsdb/annals/client v0.9.0\n\n" +
			"replace github.com/annalsdb/annals/client => " + filepath.Join(root, "client") + "\n",
		"first/main.go": strings.ReplaceAll(whole.code, usual, at),
		"rest/main.go":  program(rest, at),
	} {
		path := filepath.Join(module, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	printed := map[string]string{}
	for _, folder := range []string{"first", "rest"} {
		command := exec.CommandContext(t.Context(), testkit.Go(), "run", "./"+folder)
		command.Dir = module
		command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -trimpath")
		var stderr bytes.Buffer
		command.Stderr = &stderr
		out, err := command.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", folder, err, out, stderr.String())
		}
		printed[folder] = string(out)
	}
	whole.check(t, printed["first"])
	for _, e := range rest {
		_, out, _ := strings.Cut(printed["rest"], fmt.Sprintf("--- %d\n", e.line))
		out, _, _ = strings.Cut(out, "--- ")
		e.check(t, out)
	}
}

// check demands that an example printed its lines, in their order.
func (e *example) check(t *testing.T, out string) {
	t.Helper()
	rest := out
	for _, want := range e.want {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Errorf("%s:%d: %q does not occur, or not in this order, in what the example prints:\n%s", page, e.line, want, out)
			return
		}
		rest = after
	}
}
