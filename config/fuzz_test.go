package config_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/annalsdb/annals/config"
)

var errMissing = &fs.PathError{Op: "open", Path: "file", Err: fs.ErrNotExist}

// oneOrOther holds for every input: there is a configuration or an error, never both, and a
// configuration passes its own checks.
func oneOrOther(t *testing.T, c *config.Config, err error) {
	t.Helper()
	switch {
	case (c == nil) == (err == nil):
		t.Fatalf("configuration %v, error %v", c, err)
	case err != nil && strings.TrimSpace(err.Error()) == "":
		t.Fatal("an error without text")
	case err == nil && !c.Help && !c.Version && c.Validate() != nil:
		t.Fatalf("accepted, but: %v", c.Validate())
	}
}

func FuzzArgs(f *testing.F) {
	for _, seed := range []string{"--db x --mem-db", "--cluster-size=3", "--flag+ --mem-db- -h", "--max-truncation -1", "--=\n-", "--gossip-seed a:1,b:2 --allow-unknown-options --zzz"} {
		f.Add(strings.ReplaceAll(seed, " ", "\n"), "STORE_"+seed)
	}
	f.Fuzz(func(t *testing.T, args, env string) {
		c, err := config.Load(strings.Split(args, "\n"), strings.Split(env, "\n"), func(string) ([]byte, error) { return nil, errMissing })
		oneOrOther(t, c, err)
		if err == nil && !c.Help && !c.Version {
			c.Values()
		}
	})
}

func FuzzYAML(f *testing.F) {
	for _, seed := range []string{"---\nNodePort: 1\n", "a: [b, c]\n", "GossipSeed:\n  - a:1\n  - b:2\n", "Db: ~\n", "Db: |\n  x\n", "Db: &a x\nIndex: *a\n", "? a\n: b\n", "<<: {a: 1}\n", "Db: !!str 1\n", "{", "a: b: c"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := config.Load(nil, nil, func(string) ([]byte, error) { return content, nil })
		oneOrOther(t, c, err)
		if err != nil && utf8.Valid(content) && !utf8.ValidString(err.Error()) {
			t.Fatalf("error text is broken: %q", err)
		}
		if errors.Is(err, fs.ErrNotExist) {
			t.Fatal("the file is there")
		}
	})
}
