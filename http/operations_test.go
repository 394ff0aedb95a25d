package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

const (
	opsCredentials  = "Basic b3BzOmNoYW5nZWl0"
	janeCredentials = "Basic amFuZTpjaGFuZ2VpdA=="
)

// TestOperatorRights asks for everything that an operator looks at or does, as
// everybody.
func TestOperatorRights(t *testing.T) {
	const user, ops = 1, 2 // The first caller that is let in.
	callers := []http.Header{nil, with("Authorization", janeCredentials), with("Authorization", opsCredentials), admin()}
	for _, open := range []bool{false, true} {
		n := newOperator(t, func(o *httpapi.Options) { o.Open = opening(open, false) })
		for path, c := range map[string]struct {
			method string
			from   int
			opened bool
		}{
			"/stats": {"GET", user, true}, "/stats/": {"GET", user, true}, "/stats/proc": {"GET", user, true}, "/stats/none": {"GET", user, true},
			"/stats/replication": {"GET", user, true}, "/stats/tcp": {"GET", user, true}, "/metrics": {"GET", user, true},
			"/admin/login":  {"GET", user, false},
			"/info/options": {"GET", ops, false}, "/sys/subsystems": {"GET", ops, false},
			"/histogram/reader-readevent": {"GET", ops, false}, "/histogram/none": {"GET", ops, false},
			"/admin/shutdown": {"POST", ops, false}, "/admin/reloadconfig": {"POST", ops, false}, "/admin/mergeindexes": {"POST", ops, false},
			"/admin/scavenge": {"POST", ops, false}, "/admin/scavenge?threads=0": {"POST", ops, false}, "/admin/scavenge?dryRun=true": {"POST", ops, false},
			"/admin/scavenge/current": {"GET", ops, false}, "/admin/scavenge/last": {"GET", ops, false}, "/admin/scavenge/x": {"DELETE", ops, false},
			"/admin/backup/sessions": {"POST", ops, false}, "/admin/backup/sessions/x": {"DELETE", ops, false}, "/admin/backup/sessions/x/files/index%2Findexmap": {"GET", ops, false},
		} {
			for i, h := range callers {
				a := n.do(c.method, path, "", h.Clone())
				check.Equal(t, a.status != 401, i >= c.from || c.opened && open, fmt.Sprintf("%s for caller %d, open %v", path, i, open))
				if shared := a.header.Get("Cache-Control") == "max-age=1, public"; shared != (a.status == 200 && c.opened && open && strings.HasPrefix(path, "/stats")) {
					t.Errorf("%s, open %v: Cache-Control is %s", path, open, a.header.Get("Cache-Control"))
				}
				if control := a.header.Get("Cache-Control"); a.status == 200 && c.method == "GET" && !(c.opened && open) && !strings.Contains(control, "private") && !strings.Contains(control, "no-cache") {
					t.Errorf("%s: Cache-Control is %s", path, control)
				}
				if a.status == 401 {
					a.has(t, "WWW-Authenticate", `X-Basic realm="ESDB"`)
					a.bare(t)
				}
			}
			n.do(c.method, path, "", with("Authorization", wrongCredentials)).is(t, 401)
		}
	}
}

// TestOperatorMethods has each path answer OPTIONS to everybody and refuse what
// it does not do.
func TestOperatorMethods(t *testing.T) {
	n := newOperator(t)
	for path, methods := range map[string]string{
		"/stats": "GET, OPTIONS", "/stats/": "GET, OPTIONS", "/stats/a/b": "GET, OPTIONS", "/stats/replication": "GET, OPTIONS", "/stats/tcp": "GET, OPTIONS",
		"/metrics": "GET, OPTIONS", "/histogram/x": "GET, OPTIONS", "/info/options": "GET, OPTIONS", "/sys/subsystems": "GET, OPTIONS",
		"/admin/login": "GET, OPTIONS", "/admin/shutdown": "POST, OPTIONS", "/admin/reloadconfig": "POST, OPTIONS", "/admin/mergeindexes": "POST, OPTIONS",
		"/admin/scavenge": "POST, OPTIONS", "/admin/scavenge/current": "GET, DELETE, OPTIONS", "/admin/scavenge/last": "GET, OPTIONS",
		"/admin/scavenge/0f9fad5b-d9cb-469f-a165-70867728950e": "DELETE, OPTIONS", "/admin/scavenge/x": "DELETE, OPTIONS", "/admin/scavenge/Current": "DELETE, OPTIONS",
		"/admin/backup/sessions": "POST, GET, OPTIONS", "/admin/backup/sessions/x": "DELETE, OPTIONS", "/admin/backup/sessions/x/files/index/y": "GET, OPTIONS",
		"/health/ready": "GET, HEAD, OPTIONS", "/health/startup": "GET, HEAD, OPTIONS",
	} {
		a := n.do("OPTIONS", path, "", nil).is(t, 200)
		check.Equal(t, a.body, "", "body")
		checkCORS(t, a, methods)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "FOO"} {
			known := strings.Contains(methods, method) || method == "HEAD" && strings.Contains(methods, "GET")
			a := n.do(method, path, "", admin())
			check.Equal(t, a.status != 405, known, method+" "+path+" is known")
			checkCORS(t, a, methods)
			if !known {
				a.has(t, "Allow", methods).bare(t)
			}
		}
	}
}

func TestOperationsNegotiation(t *testing.T) {
	n := newOperator(t)
	for _, c := range []struct{ accept, format, want string }{
		{"", "", "text/plain"},
		{"*/*", "", "text/plain"},
		{"text/*", "", "text/plain"},
		{"application/*", "", appJSON},
		{"application/json, text/plain, */*", "", appJSON},
		{"application/xml", "", "application/xml"},
		{textXML, "", textXML},
		{textXML, "json", appJSON},
		{"", "xml", textXML},
		{"", "nonsense", ""},
		{"image/png", "", ""},
	} {
		a := n.do("POST", "/admin/mergeindexes?format="+c.format, "ignored", headersWith(c.accept))
		if c.want == "" {
			a.is(t, 406).bare(t)
			for _, path := range []string{"/admin/shutdown", "/admin/reloadconfig"} {
				n.do("POST", path+"?format="+c.format, "", headersWith(c.accept)).is(t, 406)
			}
			n.get("/admin/login?format="+c.format, c.accept).is(t, 406)
			continue
		}
		a.is(t, 200).has(t, "Content-Type", c.want+"; charset=utf-8")
		id := event.ID{0xab, 15: n.operations.ids}.String()
		check.Equal(t, a.body, map[string]string{
			"text/plain": "MergeIndexesId: " + id,
			appJSON:      "{\n  \"mergeIndexesId\": \"" + id + "\"\n}",
			textXML:      `<?xml version="1.0" encoding="utf-8"?><MergeIndexesResultDto><MergeIndexesId>` + id + "</MergeIndexesId></MergeIndexesResultDto>",
			"application/xml": `<?xml version="1.0" encoding="utf-8"?><MergeIndexesResultDto><MergeIndexesId>` + id +
				"</MergeIndexesId></MergeIndexesResultDto>",
		}[c.want], c.accept)
	}
}

func headersWith(accept string) http.Header {
	h := admin()
	if accept != "" {
		h.Set("Accept", accept)
	}
	return h
}

func TestOperations(t *testing.T) {
	n := newOperator(t)
	for _, path := range []string{"/admin/reloadconfig", "/admin/shutdown"} {
		for _, contentType := range []string{"", "image/png", appJSON} {
			h := admin("Accept", appJSON)
			if contentType != "" {
				h.Set("Content-Type", contentType)
			}
			check.Equal(t, n.do("POST", path, "{ignored", h).is(t, 200).body, "", "body")
		}
	}
	check.Equal(t, strings.Join(n.operations.calls, " "), "reload reload reload shutdown shutdown shutdown", "asked for")
	n.do("POST", "/admin/shutdown", "", nil).is(t, 401)
	n.do("POST", "/admin/reloadconfig", "", admin("Accept", "image/png")).is(t, 406)
	check.Equal(t, len(n.operations.calls), 6, "asked for")

	n.operations.fail = event.ErrNotReady
	n.do("POST", "/admin/mergeindexes", "", admin()).is(t, 503).says(t, "Server Is Not Ready")
	newNode(t).do("POST", "/admin/shutdown", "", admin()).is(t, 404)
}

// TestShutdownAnswersFirst stops the node only when the client has its answer.
func TestShutdownAnswersFirst(t *testing.T) {
	n := newOperator(t)
	answered, stopped := make(chan struct{}), make(chan struct{})
	n.operations.shutdown = func() {
		<-answered
		close(stopped)
	}
	r, err := http.NewRequest("POST", "http://"+listen(t, n.handler)+"/admin/shutdown", nil)
	check.Must(t, err)
	r.Header = admin()
	response, err := http.DefaultTransport.RoundTrip(r)
	check.Must(t, err)
	check.Equal(t, response.StatusCode, 200, "status")
	check.Equal(t, response.ContentLength, 0, "length")
	check.Equal(t, response.Close, true, "close")
	check.NoError(t, response.Body.Close())
	close(answered)
	<-stopped
}

func TestLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newOperator(t)
		for credentials, who := range map[string]string{
			janeCredentials: `"jane",` + "\n    " + `"fullName": "jane",` + "\n    " + `"groups": []`,
			opsCredentials:  `"ops",` + "\n    " + `"fullName": "ops",` + "\n    " + `"groups": [` + "\n      \"$ops\"\n    ]",
		} {
			for _, accept := range []string{"*/*", appJSON, "text/plain", textXML} {
				a := n.do("GET", "/admin/login", "", with("Authorization", credentials, "Accept", accept)).is(t, 200).
					has(t, "Content-Type", "application/json; charset=utf-8").has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate")
				check.Equal(t, a.body, `{
  "data": {
    "loginName": `+who+`,
    "dateLastUpdated": "`+time.Now().UTC().Format("2006-01-02T15:04:05.9999999Z")+`"
  },
  "success": true,
  "error": "Success"
}`, "login")
			}
		}
		n.do("GET", "/admin/login", "", nil).is(t, 401)
		n.do("GET", "/admin/login", "", with("Authorization", wrongCredentials)).is(t, 401)
	})
	n := newOperator(t, func(o *httpapi.Options) { o.Insecure = true })
	n.access.insecure = true
	a := decode[struct{ Data struct{ LoginName string } }](t, n.do("GET", "/admin/login", "", nil))
	check.Equal(t, a.Data.LoginName, "system", "without security")
}

// TestDisableAdminUI removes what the interface uses, for all callers.
func TestDisableAdminUI(t *testing.T) {
	n := newOperator(t, func(o *httpapi.Options) { o.DisableAdminUI = true })
	for _, path := range []string{"/", "/web", "/sys/subsystems", "/admin/login", "/admin/shutdown", "/admin/reloadconfig", "/admin/mergeindexes",
		"/admin/scavenge", "/admin/scavenge/current", "/admin/scavenge/last", "/admin/scavenge/x"} {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			n.do(method, path, "", admin()).is(t, 404).bare(t)
		}
	}
	check.Equal(t, len(n.operations.calls), 0, "asked for")
	for _, path := range []string{"/info", "/info/options", "/stats", "/metrics", "/histogram/reader-readevent", "/ping"} {
		n.get(path, "").is(t, 200)
	}
}

func TestSubsystems(t *testing.T) {
	for _, c := range []struct {
		running []string
		body    string
	}{
		{nil, "[]"},
		{[]string{}, "[]"},
		{[]string{"Projections"}, "[\n  \"Projections\"\n]"},
		{[]string{"Projections", "a\"b"}, "[\n  \"Projections\",\n  \"a\\\"b\"\n]"},
	} {
		n := newOperator(t, func(o *httpapi.Options) { o.Subsystems = func() []string { return c.running } })
		a := n.get("/sys/subsystems", "").is(t, 200).has(t, "Content-Type", "application/json; charset=utf-8")
		check.Equal(t, a.body, c.body, "subsystems")
		for accept, status := range map[string]int{"*/*": 200, "application/*": 200, appJSON: 200, "text/plain": 406, textXML: 406} {
			n.get("/sys/subsystems", accept).is(t, status)
		}
		n.get("/sys/subsystems?format=text", "").is(t, 406)
	}
	check.Equal(t, newNode(t).get("/sys/subsystems", "").is(t, 200).body, "[]", "none")
}

func TestInfo(t *testing.T) {
	n := newOperator(t, func(o *httpapi.Options) {
		o.Subsystems, o.ProjectionsMode = func() []string { return []string{"Projections"} }, "System"
		o.Insecure = true
	})
	n.golden("info-projections.json", "/info", "")
	bare := newNode(t, func(o *httpapi.Options) { o.DisableAtomPub = true }).get("/info", "").is(t, 200)
	check.Equal(t, strings.Contains(bare.body, `"atomPub": false`), true, "without streams")
}

func TestOptions(t *testing.T) {
	n := newOperator(t)
	n.golden("options.json", "/info/options", appJSON)
	want := n.get("/info/options", "").is(t, 200).body
	for _, accept := range []string{"*/*", "text/plain", textXML, "application/xml"} {
		a := n.get("/info/options", accept).is(t, 200).has(t, "Content-Type", "application/json; charset=utf-8")
		check.Equal(t, a.body, want, accept)
	}
	n.get("/info/options", "image/png").is(t, 406)
	n.get("/info/options?format=nonsense", "").is(t, 406)

	var got []struct {
		Name, Description, Group, Value string
		PossibleValues                  []string
		ConfigurationSource             string
		DeprecationMessage              *string
	}
	check.Must(t, json.Unmarshal([]byte(want), &got))
	for i, v := range someSettings() {
		check.Equal(t, fmt.Sprint(got[i].Name, got[i].Description, got[i].Group, got[i].Value, got[i].ConfigurationSource, got[i].PossibleValues),
			fmt.Sprint(v.Name, v.Description, v.Group, v.Value, v.Source, v.Possible), v.Name)
		check.Equal(t, got[i].DeprecationMessage != nil, v.Deprecation != "", "deprecation of "+v.Name)
	}
	newNode(t).get("/info/options", "").is(t, 404)
}
