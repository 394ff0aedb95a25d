package lint

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// page reads a document.
func page(t *testing.T, name string) string {
	t.Helper()
	text := check.Value(os.ReadFile(filepath.Join(root(t), name))).Must(t)
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
		if f.isTest() || within(f.name, "torture") || within(f.name, "internal/lab") || within(f.name, "internal/testkit") {
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

// levelsOfLines are the names of methods that log, and where their text is among the arguments.
var levelsOfLines = map[string]int{"Error": 0, "Warn": 0, "Info": 0, "warn": 0, "Log": 1, "say": 3}

// loud reports whether an expression is one of the levels that the page of log lines is for.
func loud(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Warn" && s.Sel.Name != "Error" {
		return false
	}
	pkg, ok := s.X.(*ast.Ident)
	return ok && pkg.Name == "hclog"
}

// linesOf finds the texts that a node of a file logs, and reports whether the page must have them.
func linesOf(n ast.Node, found func(text string, must bool)) {
	said := func(texts []ast.Expr, must bool) {
		for _, e := range texts {
			if text := literalOf(e); strings.Contains(text, " ") {
				found(text, must)
			}
		}
	}
	switch n := n.(type) {
	case *ast.CallExpr:
		name := ""
		switch fun := n.Fun.(type) {
		case *ast.SelectorExpr:
			name = fun.Sel.Name
		case *ast.Ident:
			name = fun.Name
		}
		if at, ok := levelsOfLines[name]; ok && len(n.Args) > at {
			said(n.Args[at:at+1], name != "Info")
		}
	case *ast.CompositeLit: // as say{hclog.Warn, "text"}
		if len(n.Elts) > 1 && loud(n.Elts[0]) {
			said(n.Elts[1:2], true)
		}
	case *ast.AssignStmt: // as line, level = "text", hclog.Warn
		if slices.ContainsFunc(n.Rhs, loud) {
			said(n.Rhs, true)
		}
		if first, ok := n.Lhs[0].(*ast.Ident); ok && first.Name == "line" {
			said(n.Rhs, false)
		}
	}
}

// raftLines are the texts of raft that pass through at the levels warn and error, in the words that
// the tables of replication/quiet.go have for them.
func raftLines(t *testing.T) (lines []string) {
	t.Helper()
	tables := map[string]map[string]string{"levels": {}, "words": {}}
	constants := map[string]string{}
	for _, f := range sources(t) {
		if f.name != "replication/quiet.go" {
			continue
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) == 0 {
				return true
			}
			if text := literalOf(spec.Values[0]); text != "" {
				for i, name := range spec.Names {
					constants[name.Name] = literalOf(spec.Values[i])
				}
			}
			table, of := tables[spec.Names[0].Name]
			literal, ok := spec.Values[0].(*ast.CompositeLit)
			if !of || !ok {
				return true
			}
			for _, e := range literal.Elts {
				pair := e.(*ast.KeyValueExpr)
				key := literalOf(pair.Key)
				if name, ok := pair.Key.(*ast.Ident); ok {
					key = constants[name.Name]
				}
				table[key] = literalOf(pair.Value)
			}
			return true
		})
	}
	if len(tables["levels"]) == 0 || len(tables["words"]) == 0 {
		t.Fatal("the tables of replication/quiet.go are not where they were")
	}
	list := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/hashicorp/raft")
	list.Dir = root(t)
	dir := check.Value(list.Output()).Must(t)
	// The other files are of parts that are not used.
	for _, name := range []string{"api.go", "raft.go", "replication.go", "snapshot.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), name), nil, 0)
		check.Must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || method.Sel.Name != "Warn" && method.Sel.Name != "Error" {
				return true
			}
			text := literalOf(call.Args[0])
			if _, quiet := tables["levels"][text]; text != "" && !quiet {
				lines = append(lines, cmp.Or(tables["words"][text], text))
			}
			return true
		})
	}
	return lines
}

// TestLogLinesPage: the page of log lines has every text of the levels error and warn, those of
// raft too, and no text that the program does not log.
func TestLogLinesPage(t *testing.T) {
	text := page(t, "docs/log-lines.md")
	logged := map[string]bool{}
	look := func(file, line string, must bool) {
		logged[line] = true
		if must && !strings.Contains(text, "`"+line+"`") {
			t.Errorf("%s: docs/log-lines.md lacks the text %q", file, line)
		}
	}
	for _, f := range sources(t) {
		if f.isTest() || within(f.name, "torture") || within(f.name, "internal/lab") || within(f.name, "internal/testkit") {
			continue
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			linesOf(n, func(line string, must bool) { look(f.name, line, must) })
			return true
		})
	}
	for _, line := range raftLines(t) {
		look("hashicorp/raft", line, true)
	}
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \| (?:error|warn|info) \|`).FindAllStringSubmatch(text, -1) {
		for _, m := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(row[1], -1) {
			if !logged[m[1]] {
				t.Errorf("docs/log-lines.md: no code logs the text %q", m[1])
			}
		}
	}
}

// TestErrorsPage: the page of errors has the texts that the tables of HTTP and gRPC answer with.
func TestErrorsPage(t *testing.T) {
	text := page(t, "docs/errors.md")
	names := map[string]int{"New": 1, "silence": 1, "plain": 1}
	calls(t, func(f *source, name string, call *ast.CallExpr) {
		if f.name != "http/problem/problem.go" && f.name != "grpc/errors.go" {
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
