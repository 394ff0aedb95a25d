package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestProjectionTestDocument runs the example of the document.
func TestProjectionTestDocument(t *testing.T) {
	root := check.Value(testkit.Root()).Must(t)
	text := check.Value(os.ReadFile(filepath.Join(root, "docs", "projection-test.md"))).Must(t)
	block := func(language string) string {
		t.Helper()
		found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(text)
		if found == nil {
			t.Fatalf("no block of %s", language)
		}
		return string(found[1])
	}
	code, stdout, stderr := runProjectionTest(t, block("js"), block("json"))
	if code != 0 || stdout != block("text") || stderr != "" {
		t.Errorf("code %d, %s\n%s", code, stderr, stdout)
	}
}

// runProjectionTest runs a script over events from standard input.
func runProjectionTest(t *testing.T, source, events string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "p.js")
	check.Must(t, os.WriteFile(file, []byte(source), 0o644))
	code, stdout, stderr = runProjection(events, append([]string{"test", file, "--events", "-"}, args...)...)
	return code, stdout, strings.ReplaceAll(stderr, file, "p.js")
}

// compact is the output without white space outside of texts.
func compact(s string) string { return regexp.MustCompile(`\n\s*`).ReplaceAllString(s, "") }

func TestProjectionTest(t *testing.T) {
	cases := []struct {
		name, source, events, want string
		code                       int
		stderr                     string
	}{
		{"a stream", `fromStream('a').when({$any: (s, e) => (s.n || 0) + 1 && {n: (s.n || 0) + 1, last: e.sequenceNumber, id: e.eventId}})`,
			"{\"streamId\":\"a\",\"eventType\":\"T\",\"data\":1}\n\n{\"streamId\":\"b\",\"eventType\":\"T\"}\n{\"streamId\":\"a\",\"eventType\":\"T\",\"data\":\"text\"}",
			`{"partitions": [{"partition": "","state": {"n": 2,"last": 1,"id": "00000000-0000-0000-0000-000000000004"},"result": {"n": 2,"last": 1,"id": "00000000-0000-0000-0000-000000000004"}}],"emitted": [],"handled": 2}` + "\n", 0, ""},
		{"as a feed has it", `fromAll().when({T: (s, e) => [e.body.a, e.metadata.m, e.eventId, e.sequenceNumber, e.linkMetadata.l]})`,
			`{"streamId":"a","eventType":"T","isJson":true,"data":"{\"a\":1}","metaData":"{\"m\":2}","eventNumber":5,"eventId":"0f9fad5b-d9cb-469f-a165-70867728950e","positionStreamId":"$ce-x","positionEventNumber":3,"linkMetaData":"{\"l\":4}"}`,
			`{"partitions": [{"partition": "","state": [1,2,"0f9fad5b-d9cb-469f-a165-70867728950e",5,4],"result": [1,2,"0f9fad5b-d9cb-469f-a165-70867728950e",5,4]}],"emitted": [],"handled": 1}` + "\n", 0, ""},
		{"deleted", `fromAll().foreachStream().when({T(s) { s.n = 1 }, $deleted(s) { s.gone = true; linkStreamTo('gone', 'x'); log('gone') }})`,
			"{\"streamId\":\"a\",\"eventType\":\"T\",\"data\":{}}\n{\"streamId\":\"a\",\"eventType\":\"$streamDeleted\",\"isJson\":false}",
			`{"partitions": [{"partition": "a","state": {"n": 1,"gone": true},"result": {"n": 1,"gone": true}}],"emitted": [{"streamId": "gone","eventType": "$@","data": "x","by": "1@a"}],"log": ["gone"],"handled": 2}` + "\n", 0, ""},
		{"a fault", "fromAll().when({\n T(s, e) { e.body.a.b } })", `{"streamId":"a","eventType":"T","data":{}}`,
			`{"partitions": [],"emitted": [],"handled": 0,"fault": {"message": "Cannot read property 'b' of undefined","handler": "T","event": "0@a","line": 2,"column": 21,"stack": ["at T (2:21)"]}}` + "\n", 1,
			"annals: p.js:2:21: Cannot read property 'b' of undefined\n"},
		{"a wrong definition", `fromAll(`, ``, `{"partitions": [],"emitted": [],"handled": 0,"fault": {"message": "SyntaxError: Unexpected end of input","line": 1,"column": 9}}` + "\n", 1,
			"annals: p.js:1:9: SyntaxError: Unexpected end of input\n"},
		{"no event", `fromAll()`, `{"streamId":"a"}`, "", 2, "annals: - line 1: an event needs streamId and eventType\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := runProjectionTest(t, c.source, c.events)
			if code != c.code || compact(stdout) != strings.TrimSuffix(c.want, "\n") || stderr != c.stderr {
				t.Errorf("code %d, stderr %q\n%s\nwant code %d, stderr %q\n%s", code, stderr, compact(stdout), c.code, c.stderr, c.want)
			}
		})
	}
}

func TestProjectionTestGolden(t *testing.T) {
	golden := filepath.Join(t.TempDir(), "p.golden")
	event := `{"streamId":"a","eventType":"T","data":{}}`
	if code, _, stderr := runProjectionTest(t, `fromAll().when({T: () => 1})`, event, "--golden", golden); code != exitCannotBeTold {
		t.Errorf("no golden file: code %d, %s", code, stderr)
	}
	if code, stdout, stderr := runProjectionTest(t, `fromAll().when({T: () => 1})`, event, "--golden", golden, "--update"); code != 0 || stdout+stderr != "" {
		t.Errorf("update: code %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, _ := runProjectionTest(t, `fromAll().when({T: () => 1})`, event, "--golden", golden); code != 0 || stdout != "" {
		t.Errorf("the same: code %d, %s", code, stdout)
	}
	code, stdout, _ := runProjectionTest(t, `fromAll().when({T: () => 2})`, event, "--golden", golden)
	if want := golden + " line 5 differs\n-       \"state\": 1,\n+       \"state\": 2,\n"; code != exitProblems || stdout != want {
		t.Errorf("different: code %d, %q", code, stdout)
	}
	if code, _, _ := runProjectionTest(t, `fromAll()`, event, "--update"); code != exitCannotBeTold {
		t.Errorf("update without a file: code %d", code)
	}
}
