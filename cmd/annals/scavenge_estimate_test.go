package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

const estimateAnswer = `{"end":1300000000,"threshold":10,"bytes":90000000,"events":123456,"tookMs":1234,
"chunks":[
{"file":"chunk-000000.000003","first":0,"last":2,"fileBytes":268435456,"bytes":80000000,"events":120000,"weight":240000,"executed":true},
{"file":"chunk-000003.000000","first":3,"last":3,"fileBytes":268435456,"bytes":0,"events":0,"weight":0,"executed":false},
{"file":"chunk-000004.000000","first":4,"last":4,"fileBytes":268435456,"bytes":1000,"events":4,"weight":8,"executed":false},
{"file":"chunk-000005.000000","first":5,"last":5,"fileBytes":4096,"bytes":0,"events":0,"weight":12,"executed":true}],
"streams":[{"stream":"orders-1","events":100000,"bytes":70000000,"why":"$maxCount"},{"stream":"odd\u001b[2J","events":5,"bytes":1023,"why":"deleted"}],
"kept":[{"stream":"orders-2","events":5000,"bytes":123456789,"why":"no metadata limits it"}]}`

const postEstimate = postRun // as far as the path goes

func TestScavengeDryRun(t *testing.T) {
	_, address := scavenger(t, map[string][]string{postEstimate: {estimateAnswer}})
	code, stdout, stderr := runScavenge("dry-run", "--node", address)
	if code != 0 || stderr != "" {
		t.Errorf("code %d, %s", code, stderr)
	}
	compareGolden(t, "scavenge_dry_run.golden", stdout)

	code, stdout, stderr = runScavenge("dry-run", "--node", address, "--json")
	var got, want map[string]any
	for text, into := range map[string]*map[string]any{stdout: &got, estimateAnswer: &want} {
		check.Must(t, json.Unmarshal([]byte(text), into))
	}
	want["node"] = "127.0.0.1:1"
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if code != 0 || stderr != "" || !bytes.Equal(a, b) {
		t.Errorf("code %d, %s\n%s\n%s", code, stderr, a, b)
	}

	var complaints bytes.Buffer
	if code := run([]string{"scavenge", "dry-run", "--node", address}, failingWriter{}, &complaints, nil); code != 1 || !strings.Contains(complaints.String(), io.ErrClosedPipe.Error()) {
		t.Errorf("code %d, %s", code, &complaints)
	}
}

func TestScavengeDryRunOfNothing(t *testing.T) {
	_, address := scavenger(t, map[string][]string{postEstimate: {`{"chunks":[],"streams":null,"kept":[]}`}})
	expect(t, []string{"dry-run", "--node", address}, 0, []string{"would remove 0 events, 0 B.\n", "Chunk files to gain from\nnone\n", "Streams that would lose most\nnone\n"}, nil)
}

func TestScavengeDryRunRefused(t *testing.T) {
	for answer, stderr := range map[string]string{
		"{}":                               "answers something other than an estimate",
		"[]":                               "read the answer",
		"503 The log is not open yet.":     "is not ready: The log is not open yet.",
		"400 threshold must be an integer": "refuses: threshold must be an integer (status 400)",
	} {
		_, address := scavenger(t, map[string][]string{postEstimate: {answer}})
		expect(t, []string{"dry-run", "--node", address}, 1, nil, []string{stderr})
	}
}

// TestScavengeDryRunStartsNothing: a server that knows no estimates and starts a
// scavenge in place of one is asked to stop it.
func TestScavengeDryRunStartsNothing(t *testing.T) {
	stop := "DELETE /admin/scavenge/" + testRun
	n, address := scavenger(t, map[string][]string{postEstimate: {accepted}, stop: {`"` + testRun + `"`}})
	expect(t, []string{"dry-run", "--node", address}, 1, nil, []string{"had started scavenge " + testRun + " in place of one; it was stopped"})
	if asked := n.asked(); len(asked) != 2 || asked[1] != stop {
		t.Errorf("asked %q", asked)
	}
	_, address = scavenger(t, map[string][]string{postEstimate: {accepted}, stop: {"404 Scavenge Id does not exist"}})
	expect(t, []string{"dry-run", "--node", address}, 1, nil, []string{"has started scavenge " + testRun, "is not running"})
}
