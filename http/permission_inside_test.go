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

// TestForgottenRequirement: an operation of which nobody said who may do it is
// refused. TestPermissions holds all others.
func TestForgottenRequirement(t *testing.T) {
	if err := new(exchange).permit(new(requirement)); err == nil {
		t.Error("what nobody thought of is allowed")
	}
}
