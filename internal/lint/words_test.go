package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is how wide comments and the prose of documents are. A tab counts four.
const maxColumns = 100

// word is a way to say something that readers stumble over, with what to say instead.
type word struct {
	pattern *regexp.Regexp
	instead string
	allowed *regexp.Regexp // matched where the word stands, with what is before and after it
}

func w(pattern, instead, allowed string) word {
	x := word{regexp.MustCompile(`(?i)` + pattern), instead, nil}
	if allowed != "" {
		x.allowed = regexp.MustCompile(`(?i)` + allowed)
	}
	return x
}

// words are not used where a person reads: in comments, in documents, and in texts of the program.
var words = []word{
	w(`\banew\b`, `"again"`, ""),
	w(`\bnobody\b`, `"no one", "no client", "no node"`, ""),
	w(`\bsomebody\b`, `"someone", "a client", "another user"`, ""),
	w(`\banybody\b`, `"anyone", "any client"`, ""),
	w(`\bbehind\b`, `"after" in time, "next to" or "under" in place`,
		`\b(falls?|fell|falling|fallen|lags?|lagging|far|is|are|was|were|be|how|bytes|seconds|milliseconds|entries|events|records|left|runs?|stays?|further) behind\b|\bbehind (a|an|the|its|another|one)?( TLS| reverse| load)*( |-)?(proxy|proxies|balancer|firewall|gateway|NAT)\b|`+"`behind`"),
	w(`\bbeside\b`, `"next to", "with", "besides"`, ""),
	w(`\b(go|goes|going|went|gone) on\b`, `"continue", "resume", "keep serving"`, ""),
	w(`\bunder ?way\b`, `"in flight", "running"`, ""),
	w(`\b(is|are|was|were) no\b`, `"is not a"`, `\b(there|here) (is|are|was|were) no\b|\b(is|are|was|were) no (longer|more|less|later|earlier|fewer|newer|older|greater|larger|smaller|matter)\b`),
	w(`\bwhat (is|are|was|were) not\b`, `a noun: "a request that is not plain"`, ""),
	w(`\bwho(m|so)?ever\b`, `the noun: "the caller", "a client that"`, ""),
	w(`\b(is|are|was|were|be|been) told\b`, `the active voice: "learns", "the log says"`, ""),
	w(`\bthe reference( server| product)?\b`, `"EventStoreDB"`, `\bthe reference (count|page|manual)`),
	w(`\bmanifests?\b`, `"snapshot"`, `manifest\.json|\bbackup'?s? manifest|\bmanifests? of (a|the|each|that|every|an earlier|this) (backup|image)`),
	w(`\blineages?\b`, `"cluster incarnation"`, "[`\"]lineage[`\"]"),
	w(`\btwins?\b`, `"duplicate node id", "counterpart"`, "[`\"]twins?[`\"]"),
	w(`\bstrangers?\b`, `"unknown node", "foreign file"`, ""),
	w(`\bdoubt(s|ed|er|ing)?\b`, `"suspect", "uncertain"`, ""),
}

// inFiles are words that are right in some folders: what they name there has no other name.
var inFolders = map[string][]string{
	"admin/backup": {"manifest"}, "deploy": {"manifest"},
}

// complaints lists what a text should not say.
func complaints(name, text string) []string {
	var found []string
	for _, w := range words {
		for _, at := range w.pattern.FindAllStringIndex(text, -1) {
			said := text[at[0]:at[1]]
			around := text[max(0, at[0]-40):min(len(text), at[1]+40)]
			if w.allowed != nil && w.allowed.MatchString(around) {
				continue
			}
			if allowedIn(name, strings.ToLower(said)) {
				continue
			}
			found = append(found, fmt.Sprintf("%q: say %s", said, w.instead))
		}
	}
	return found
}

func allowedIn(name, said string) bool {
	for folder, list := range inFolders {
		if within(path.Dir(name), folder) && slices.ContainsFunc(list, func(w string) bool { return strings.HasPrefix(said, w) }) {
			return true
		}
	}
	return false
}

// TestWordsInCode: comments and texts of the program are in plain words.
func TestWordsInCode(t *testing.T) {
	for _, f := range sources(t) {
		if generated(f.text) || f.name == "internal/lint/words_test.go" {
			continue
		}
		for _, group := range f.file.Comments {
			for _, c := range complaints(f.name, joined(group)) {
				t.Errorf("%s:%d: %s", f.name, f.set.Position(group.Pos()).Line, c)
			}
		}
		if f.isTest() {
			continue
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			if _, ok := n.(*ast.ImportSpec); ok {
				return false
			}
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil || !strings.Contains(text, " ") || contractTexts[text] {
				return true
			}
			for _, c := range complaints(f.name, text) {
				t.Errorf("%s:%d: %s", f.name, f.set.Position(literal.Pos()).Line, c)
			}
			return true
		})
	}
}

// contractTexts are what clients compare with.
var contractTexts = map[string]bool{}

// joined is the text of a comment without its marks and line breaks.
func joined(group *ast.CommentGroup) string { return strings.Join(strings.Fields(group.Text()), " ") }

func generated(text []byte) bool { return bytes.Contains(text, []byte("// Code generated ")) }

// TestColumnsOfComments: comments fit into a window beside another one.
func TestColumnsOfComments(t *testing.T) {
	for _, f := range sources(t) {
		if generated(f.text) {
			continue
		}
		lines := strings.Split(string(f.text), "\n")
		for _, group := range f.file.Comments {
			for _, c := range group.List {
				n := f.set.Position(c.Pos()).Line
				for i := range strings.Count(c.Text, "\n") + 1 {
					line := strings.TrimRight(lines[n-1+i], "\r")
					if columns(line) > maxColumns && !unbreakable(line) {
						t.Errorf("%s:%d: a comment of %d columns, %d are allowed", f.name, n+i, columns(line), maxColumns)
					}
				}
			}
		}
	}
}

func columns(line string) int { return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t") }

// unbreakable reports whether a line is a directive, part of a drawing or an address.
func unbreakable(line string) bool {
	_, comment, _ := strings.Cut(line, "//")
	return strings.HasPrefix(comment, "go:") || strings.HasPrefix(comment, "lint:") || strings.HasPrefix(comment, "\t") ||
		strings.HasPrefix(comment, "   ") || !strings.Contains(strings.TrimSpace(comment), " ")
}

// TestDocuments: documents are in plain words, and their prose fits into a window.
func TestDocuments(t *testing.T) {
	walk(t, func(name string, read func() []byte) {
		if path.Ext(name) != ".md" || strings.Contains(name, "testdata/") || strings.HasPrefix(name, "web/") {
			return
		}
		for n, line := range prose(string(read())) {
			for _, c := range complaints(name, line) {
				t.Errorf("%s:%d: %s", name, n+1, c)
			}
			isTable := strings.HasPrefix(strings.TrimSpace(line), "|")
			if columns(line) > maxColumns && !isTable && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%s:%d: a line of %d columns, %d are allowed", name, n+1, columns(line), maxColumns)
			}
		}
	})
}

// prose are the lines of a document; those of examples and of comments are empty.
func prose(text string) []string {
	lines := strings.Split(text, "\n")
	fenced, hidden := false, false
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
			lines[i] = ""
		case fenced || strings.HasPrefix(line, "    ") && !strings.HasPrefix(trimmed, "- ") && (i == 0 || lines[i-1] == ""):
			lines[i] = ""
		case strings.HasPrefix(trimmed, "<!--"):
			hidden = true
		}
		if hidden {
			hidden = !strings.Contains(line, "-->")
			lines[i] = ""
		}
		if strings.HasPrefix(trimmed, "![") || strings.HasPrefix(trimmed, "<") {
			lines[i] = ""
		}
	}
	return lines
}
