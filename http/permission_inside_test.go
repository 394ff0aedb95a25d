package httpapi

import (
	"net/url"
	"strings"
	"testing"
)

// TestPatterns holds the patterns that are shown against the paths that are served.
func TestPatterns(t *testing.T) {
	sample := strings.NewReplacer("{", "", "}", "")
	for k, patterns := range streamPatterns {
		for _, p := range patterns {
			if rt, ok := resolve(&url.URL{Path: streamsPrefix + sample.Replace(p)}); !ok || rt.kind != kind(k) {
				t.Errorf("%s is resolved to kind %d, %v, want %d", p, rt.kind, ok, k)
			}
		}
	}
	for _, p := range subscriptionPatterns {
		if res, _ := resolveSubscription(&url.URL{Path: sample.Replace(p.path)}); res != p.res {
			t.Errorf("%s is resolved to something else", p.path)
		}
	}
	for _, p := range userPatterns {
		if res, _ := resolveUser(&url.URL{Path: sample.Replace(p.path)}); res != p.res {
			t.Errorf("%s is resolved to something else", p.path)
		}
	}
}

// TestRequirements looks for operations that nobody thought of.
func TestRequirements(t *testing.T) {
	check := func(path string, res *resource) {
		for _, op := range res.operations {
			if op.may.rule == byNobody {
				t.Errorf("%s %s: nobody said who may", op.method, path)
			}
			if (op.may == mayAnyone) != res.open {
				t.Errorf("%s %s: credentials are looked at: %v", op.method, path, !res.open)
			}
		}
	}
	s := New(Options{})
	for path, res := range s.fixedResources() {
		check(path, res)
	}
	for k := range streamResources {
		check(streamPatterns[k][0], &streamResources[k])
	}
	for _, p := range subscriptionPatterns {
		check(p.path, p.res)
	}
	for _, p := range userPatterns {
		check(p.path, p.res)
	}
	if err := (&exchange{s: s}).permit(new(requirement)); err == nil {
		t.Error("what nobody thought of is allowed")
	}
}
