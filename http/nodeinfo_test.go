package httpapi_test

import (
	"testing"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

// TestInfoForWebInterface looks at what the web interface asks /info for.
func TestInfoForWebInterface(t *testing.T) {
	type info struct {
		Features map[string]bool
		UI       struct{ Title, Tone string }
	}
	for _, c := range []struct {
		name        string
		set         func(*httpapi.Options)
		has, lacks  string
		title, tone string
	}{
		{"as it comes", func(o *httpapi.Options) {}, "atomPub", "backup", "", "None"},
		{"named", func(o *httpapi.Options) { o.WebTitle, o.WebTone = `<b>"shop"</b>`, "Production" }, "atomPub", "backup", `<b>"shop"</b>`, "Production"},
		{"backup", func(o *httpapi.Options) { o.BackupRuns = &memBackupRuns{} }, "backup", "", "", "None"},
		{"backup without /admin", func(o *httpapi.Options) { o.BackupRuns, o.DisableAdminUI = &memBackupRuns{}, true }, "atomPub", "backup", "", "None"},
		{"activity", func(o *httpapi.Options) { o.Activity = &notes{} }, "activity", "", "", "None"},
		{"activity without /streams", func(o *httpapi.Options) { o.Activity, o.DisableAtomPub = &notes{}, true }, "userManagement", "activity", "", "None"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := decode[info](t, newNode(t, c.set).do("GET", "/info", "", nil).is(t, 200))
			if !got.Features[c.has] || got.Features[c.lacks] {
				t.Errorf("features are %v, want %s and not %q", got.Features, c.has, c.lacks)
			}
			check.Equal(t, got.UI.Title+" "+got.UI.Tone, c.title+" "+c.tone, "title and tone")
		})
	}
}
