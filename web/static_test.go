package web_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/web"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	b := check.Value(fs.ReadFile(web.Static, "static/"+name)).Must(t)
	return b
}

// own calls f with every file that is written here.
func own(t *testing.T, f func(name string, content []byte)) {
	t.Helper()
	err := fs.WalkDir(web.Static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(name, "/vendor/") {
			return err
		}
		f(strings.TrimPrefix(name, "static/"), read(t, strings.TrimPrefix(name, "static/")))
		return nil
	})
	check.Must(t, err)
}

// bundler returns the path of esbuild, which is a tool of the module in tools.
func bundler(t *testing.T) string {
	t.Helper()
	find := exec.Command("go", "-C", "../tools", "tool", "-n", "esbuild")
	var said bytes.Buffer
	find.Stderr = &said
	path, err := find.Output()
	if err != nil {
		t.Fatalf("find esbuild: %v\n%s", err, said.Bytes())
	}
	return strings.TrimSpace(string(path))
}

// TestModules shows that every module parses, and that all that is imported exists.
func TestModules(t *testing.T) {
	made := t.TempDir()
	metafile := filepath.Join(made, "meta.json")
	said, err := exec.Command(bundler(t), "static/app/main.js", "--bundle", "--splitting", "--format=esm", "--log-level=warning",
		"--outdir="+made, "--metafile="+metafile).CombinedOutput()
	if err != nil || len(said) > 0 {
		t.Fatalf("%v\n%s", err, said)
	}
	about := check.Value(os.ReadFile(metafile)).Must(t)
	var meta struct {
		Inputs map[string]struct {
			Imports []struct{ Path, Kind string }
		}
	}
	check.Must(t, json.Unmarshal(about, &meta))
	own(t, func(name string, _ []byte) {
		if _, isUsed := meta.Inputs["static/"+name]; strings.HasSuffix(name, ".js") && !isUsed {
			t.Errorf("%s is imported by nothing", name)
		}
	})
	// What the first page needs is asked for at once, not one import after the other.
	first := map[string]bool{}
	var follow func(name string)
	follow = func(name string) {
		if first[name] {
			return
		}
		first[name] = true
		for _, i := range meta.Inputs[name].Imports {
			if i.Kind == "import-statement" {
				follow(i.Path)
			}
		}
	}
	follow("static/app/main.js")
	page := string(read(t, "index.html"))
	for name := range first {
		if !strings.Contains(page, `"@assets@/`+strings.TrimPrefix(name, "static/")+`"`) {
			t.Errorf("index.html does not preload %s", name)
		}
	}
}

// TestFiles holds the rules of what is written here.
func TestFiles(t *testing.T) {
	size := 0
	markup := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\(|new Function`)
	imports := regexp.MustCompile(`(?m)(?:^(?:import|export) .*from |import\()"([^"]*)"`)
	own(t, func(name string, b []byte) {
		size += len(b)
		if n := bytes.Count(b, []byte("\n")); n >= 400 {
			t.Errorf("%s has %d lines, fewer than 400 are wanted", name, n)
		}
		if !strings.HasSuffix(name, ".js") {
			return
		}
		if m := markup.Find(b); m != nil {
			t.Errorf("%s has %s: stored text becomes text and nothing else", name, m)
		}
		if !bytes.HasPrefix(b, []byte("// @ts-check\n")) {
			t.Errorf("%s does not begin with // @ts-check", name)
		}
		for _, m := range imports.FindAllSubmatch(b, -1) {
			if !strings.HasPrefix(string(m[1]), ".") {
				t.Errorf("%s imports %s: imports are relative", name, m[1])
			}
		}
	})
	if size > 1<<20 {
		t.Errorf("the files written here have %d bytes", size)
	}
	page := read(t, "index.html")
	if regexp.MustCompile(`(?s)<script[^>]*>[^<]|<style|\sstyle=|\son[a-z]+=|https?:`).Match(page) {
		t.Error("index.html has a script or a style in itself, or leads elsewhere")
	}
}

// TestVendor compares what was taken from others with the sums of its making.
func TestVendor(t *testing.T) {
	var list struct {
		Packages []struct{ Name, Version, Licence string }
		Files    map[string]string
	}
	check.Must(t, json.Unmarshal(read(t, "vendor/VENDOR.json"), &list))
	entries := check.Value(fs.ReadDir(web.Static, "static/vendor")).Must(t)
	total := 0
	for _, e := range entries {
		if e.Name() == "VENDOR.json" {
			continue
		}
		b := read(t, path.Join("vendor", e.Name()))
		total += len(b)
		if sum := fmt.Sprintf("%x", sha256.Sum256(b)); list.Files[e.Name()] != sum {
			t.Errorf("%s has the sum %s, VENDOR.json says %q: make ui-vendor", e.Name(), sum, list.Files[e.Name()])
		}
		delete(list.Files, e.Name())
	}
	for name := range list.Files {
		t.Errorf("%s is in VENDOR.json alone", name)
	}
	if total > 1_200_000 {
		t.Errorf("the modules of others have %d bytes", total)
	}
	for _, p := range list.Packages {
		if p.Version == "" || p.Licence != "MIT" && p.Licence != "Apache-2.0" {
			t.Errorf("%s %q has the licence %q", p.Name, p.Version, p.Licence)
		}
	}
}
