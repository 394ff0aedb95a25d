package lint

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// page reads a document.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// literalOf is the text that an expression begins with.
func literalOf(e ast.Expr) string {
	for {
		b, ok := e.(*ast.BinaryExpr)
		if !ok {
			break
		}
		e = b.X
	}
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return text
}

// calls visits the calls of methods and functions in the product's own files.
func calls(t *testing.T, visit func(f *source, name string, call *ast.CallExpr)) {
	t.Helper()
	for _, f := range sources(t) {
		if f.isTest() || within(f.name, "cmd/annals/torture") || within(f.name, "internal/lab") || within(f.name, "internal/testkit") {
			continue
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch fun := call.Fun.(type) {
			case *ast.SelectorExpr:
				visit(f, fun.Sel.Name, call)
			case *ast.Ident:
				visit(f, fun.Name, call)
			}
			return true
		})
	}
}

// TestLogLinesPage: the page of log lines has every text of level error, and no text that the
// program does not log.
func TestLogLinesPage(t *testing.T) {
	text := page(t, "docs/log-lines.md")
	logged := map[string]bool{}
	calls(t, func(f *source, name string, call *ast.CallExpr) {
		if name != "Error" && name != "Warn" && name != "Info" || len(call.Args) == 0 {
			return
		}
		line := literalOf(call.Args[0])
		if line == "" {
			return
		}
		logged[line] = true
		if name == "Error" && !strings.Contains(text, "`"+line+"`") {
			t.Errorf("%s: docs/log-lines.md lacks the text %q", f.name, line)
		}
	})
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]*)` \\| (?:error|warn|info) \\|").FindAllStringSubmatch(text, -1) {
		if !logged[m[1]] {
			t.Errorf("docs/log-lines.md: no code logs the text %q", m[1])
		}
	}
}

// TestErrorsPage: the page of errors has the texts that the tables of HTTP and gRPC answer with.
func TestErrorsPage(t *testing.T) {
	text := page(t, "docs/errors.md")
	names := map[string]int{"refusal": 1, "silence": 1, "plain": 1}
	calls(t, func(f *source, name string, call *ast.CallExpr) {
		if f.name != "http/problem.go" && f.name != "http/onnode.go" && f.name != "grpc/errors.go" {
			return
		}
		at, ok := names[name]
		if !ok || len(call.Args) <= at {
			return
		}
		said := strings.TrimSuffix(literalOf(call.Args[at]), ": ")
		if said != "" && !strings.Contains(text, said) {
			t.Errorf("%s: docs/errors.md lacks the text %q", f.name, said)
		}
	})
}

// TestLinks: what documents lead to within the repository is there, the heading too.
func TestLinks(t *testing.T) {
	top := root(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"`)
	walk(t, func(name string, read func() []byte) {
		if filepath.Ext(name) != ".md" || strings.Contains(name, "testdata/") || within(name, "web/vendor") || within(name, "web/static") {
			return
		}
		inText := strings.Join(unfenced(string(read())), "\n")
		for _, m := range link.FindAllStringSubmatch(inText, -1) {
			to := m[1] + m[2]
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			file, heading, _ := strings.Cut(to, "#")
			target := filepath.Join(filepath.Dir(name), file)
			if file == "" {
				target = name
			}
			text, err := os.ReadFile(filepath.Join(top, target))
			if err != nil {
				if info, failed := os.Stat(filepath.Join(top, target)); failed != nil || !info.IsDir() {
					t.Errorf("%s: %s is not there", name, to)
				}
				continue
			}
			if heading != "" && !hasHeading(string(text), heading) {
				t.Errorf("%s: %s has no such heading", name, to)
			}
		}
	})
}

// unfenced are the lines of a document without those of its examples.
func unfenced(text string) []string {
	var lines []string
	fenced := false
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced {
			lines = append(lines, line)
		}
	}
	return lines
}

var notInAnchors = regexp.MustCompile(`[^a-z0-9 _-]`)

// hasHeading reports whether a document has a heading with an anchor, as forges make them.
func hasHeading(text, anchor string) bool {
	for _, line := range unfenced(text) {
		title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || !strings.HasPrefix(line, "#") {
			continue
		}
		if strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(title), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}
