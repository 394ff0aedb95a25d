package web_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
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
		if free := []string{"MIT", "Apache-2.0", "ISC", "OFL-1.1"}; p.Version == "" || !slices.Contains(free, p.Licence) {
			t.Errorf("%s %q has the licence %q", p.Name, p.Version, p.Licence)
		}
	}
}

// TestWeight bounds what the whole interface weighs as it is sent: the font as it is, the rest
// compressed.
func TestWeight(t *testing.T) {
	total := 0
	err := fs.WalkDir(web.Static, "static", func(name string, d fs.DirEntry, err error) error {
		switch path.Ext(name) {
		case ".js", ".css", ".html", ".svg":
			var packed bytes.Buffer
			w := check.Value(gzip.NewWriterLevel(&packed, gzip.BestCompression)).Must(t)
			check.Value(w.Write(read(t, strings.TrimPrefix(name, "static/")))).Must(t)
			check.Must(t, w.Close())
			total += packed.Len()
		case ".woff2":
			total += len(read(t, strings.TrimPrefix(name, "static/")))
		}
		return err
	})
	check.Must(t, err)
	if most := 350 << 10; total > most {
		t.Errorf("the interface weighs %d bytes, at most %d are wanted", total, most)
	}
}

// TestContrast computes the contrast of the colours of both themes: at least 4.5 for text and 3 for
// the edges of controls, as WCAG AA wants it.
func TestContrast(t *testing.T) {
	sheet := string(read(t, "app.css"))
	blocks := regexp.MustCompile(`(?s):root(?:\[data-theme="dark"\])? \{(.*?)\n\}`).FindAllStringSubmatch(sheet, -1)
	if len(blocks) != 2 {
		t.Fatalf("app.css has %d blocks of colours, wanted are those of light and dark", len(blocks))
	}
	for i, theme := range []string{"light", "dark"} {
		colour := map[string]float64{} // luminance by name
		for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(blocks[i][1], -1) {
			var r, g, b uint8
			check.Value(fmt.Sscanf(m[2], "%02x%02x%02x", &r, &g, &b)).Must(t)
			colour[m[1]] = 0.2126*linear(r) + 0.7152*linear(g) + 0.0722*linear(b)
		}
		hold := func(front, back string, least float64) {
			a, b := colour[front], colour[back]
			if got := (max(a, b) + 0.05) / (min(a, b) + 0.05); got < least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, at least %.1f is wanted", theme, front, back, got, least)
			}
		}
		for _, back := range []string{"page", "panel", "side", "hover", "float"} {
			for _, front := range []string{"text", "muted", "accent", "good", "warn", "bad", "string", "number"} {
				hold(front, back, 4.5)
			}
			hold("second", back, 3)
		}
		for _, back := range []string{"page", "panel", "side", "float"} {
			hold("control", back, 3)
		}
		for _, state := range []string{"accent", "good", "warn", "bad"} {
			hold(state, state+"-soft", 4.5)
			hold("text", state+"-soft", 4.5)
			hold("on", state, 4.5)
		}
	}
}

// linear is a channel of sRGB as light.
func linear(channel uint8) float64 {
	c := float64(channel) / 255
	if c <= 0.04045 {
		return c / 12.92
	}
	return math.Pow((c+0.055)/1.055, 2.4)
}
