package integration_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// scavenged is one node whose log is scavenged, under an address that a restart does not change.
type scavenged struct {
	*testkit.Process
	t   *testing.T
	dir string
}

func startScavenged(t *testing.T) *scavenged {
	s := &scavenged{t: t, dir: t.TempDir()}
	s.start()
	return s
}

func (s *scavenged) start() {
	s.t.Helper()
	s.Process = testkit.StartNode(s.t, s.dir, "--node-host-advertise-as", "127.0.0.1", "--node-port-advertise-as", "2113")
}

// do asks as an administrator.
func (s *scavenged) do(method, path, body string, status int, header ...string) testkit.Response {
	s.t.Helper()
	r := testkit.Request{Method: method, Path: path, Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON, "Content-Type": testkit.MediaEvents}}
	if body != "" {
		r.Body = []byte(body)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = header[i+1]
	}
	answer := check.Value(s.Do(s.t.Context(), r)).Must(s.t)
	check.MustEqual(s.t, answer.Status, status, method, path, answer)
	return answer
}

// uuidOf makes ids that a test can name again.
func uuidOf(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// write appends events without data, with the ids from first on.
func (s *scavenged) write(stream string, first, count int, header ...string) testkit.Response {
	s.t.Helper()
	return s.do(http.MethodPost, "/streams/"+url.PathEscape(stream), batchOf("ev", "{}", first, count), http.StatusCreated, header...)
}

func batchOf(typ, data string, first, count int) string {
	events := make([]string, count)
	for i := range events {
		events[i] = fmt.Sprintf(`{"eventId":%q,"eventType":%q,"data":%s}`, uuidOf(first+i), typ, data)
	}
	return "[" + strings.Join(events, ",") + "]"
}

func (s *scavenged) describe(stream, document string, id int) {
	s.t.Helper()
	s.do(http.MethodPost, "/streams/"+url.PathEscape(stream)+"/metadata", batchOf("$metadata", document, id, 1), http.StatusCreated)
}

func (s *scavenged) remove(stream string, hard bool) {
	s.t.Helper()
	s.do(http.MethodDelete, "/streams/"+url.PathEscape(stream), "", http.StatusNoContent, "ES-HardDelete", fmt.Sprint(hard))
}

// scavenge does a run and returns its id.
func (s *scavenged) scavenge(query, result string) string {
	s.t.Helper()
	var started, last scavengeRun
	check.Must(s.t, json.Unmarshal(s.do(http.MethodPost, "/admin/scavenge"+query, "", http.StatusOK).Body, &started))
	testkit.Eventually(s.t, settleLimit, func() error {
		if err := json.Unmarshal(s.do(http.MethodGet, "/admin/scavenge/last", "", http.StatusOK).Body, &last); err != nil || last.Result == "InProgress" {
			return fmt.Errorf("%+v, %v", last, err)
		}
		return nil
	})
	if last.ID != started.ID || last.Result != result {
		s.t.Fatalf("scavenge %s: %+v", query, last)
	}
	return last.ID
}

// history returns the events of a run that has ended.
func (s *scavenged) history(id string) (events []testkit.Entry) {
	s.t.Helper()
	testkit.Eventually(s.t, settleLimit, func() (err error) {
		events, err = s.ReadStream(s.t.Context(), "$scavenges-"+id, 0)
		if n := len(events); err != nil || n == 0 || events[n-1].Type != "$scavengeCompleted" {
			return fmt.Errorf("%v, %v", events, err)
		}
		return nil
	})
	return events
}

// numbers returns what $all has of the streams that a test wrote.
func (s *scavenged) numbers() map[string][]int64 {
	s.t.Helper()
	found := map[string][]int64{}
	page := testkit.AllStart
	for {
		feed, ok, err := s.ReadFeed(s.t.Context(), page+"?embed=rich", map[string]string{"ES-ResolveLinkTos": "False"})
		if err != nil || !ok {
			s.t.Fatal(ok, err)
		}
		for _, e := range slices.Backward(feed.Entries) {
			if strings.HasPrefix(strings.TrimPrefix(e.Stream, "$$"), "x-") {
				found[e.Stream] = append(found[e.Stream], e.Number)
			}
		}
		if len(feed.Entries) == 0 {
			return found
		}
		page = strings.TrimPrefix(feed.Links.Of("previous"), s.URL())
	}
}

// answers returns what readers of streams get.
func (s *scavenged) answers(streams []string) map[string]string {
	s.t.Helper()
	told := map[string]string{}
	for _, stream := range streams {
		for _, path := range []string{"", "/head/backward/3", "/0/forward/3", "/2/forward/2", "/3/backward/3", "/0", "/1", "/2", "/head", "/metadata", "/metadata/0", "/metadata/1"} {
			for _, name := range []string{stream, "$$" + stream} {
				path := "/streams/" + url.PathEscape(name) + path
				r := testkit.Request{Path: path + "?embed=body", Admin: true, Header: map[string]string{"Accept": testkit.MediaAtomJSON}}
				answer := check.Value(s.Do(s.t.Context(), r)).Must(s.t)
				body := strings.ReplaceAll(string(answer.Body), s.URL(), "") // The port changes.
				told[path] = fmt.Sprint(answer.Status, body, answer.Header["Etag"], answer.Header["Cache-Control"])
			}
		}
	}
	return told
}

// TestScavengeKeepsWhatReadersSee: what a run removes, and that only a reader of $all can see it,
// even after parts are rebuilt.
func TestScavengeKeepsWhatReadersSee(t *testing.T) {
	t.Parallel()
	s := startScavenged(t)
	const tombstone = 9223372036854775807
	want := map[string][]int64{}
	id := 1
	// story writes three events and what follows, and notes what stays of the stream and its
	// metadata.
	story := func(name string, stays, metadata []int64, documents ...string) string {
		stream := "x-" + name
		s.write(stream, id, 3)
		id += 100
		for _, d := range documents {
			s.describe(stream, d, id)
			id++
		}
		for name, numbers := range map[string][]int64{stream: stays, "$$" + stream: metadata} {
			if len(numbers) > 0 {
				want[name] = numbers
			}
		}
		return stream
	}
	one := []int64{0}
	all := []int64{0, 1, 2}
	story("plain", all, nil)
	retried := story("count", []int64{2}, one, `{"$maxCount":1}`)
	story("replaced", all, []int64{2}, `{"$maxCount":1}`, `{"$tb":2}`, `{}`)
	story("wrong type", all, []int64{1}, `{"$maxCount":1}`, `{"$maxCount":"1"}`)
	story("out of range", all, one, `{"$maxCount":0,"$maxAge":-1,"$tb":-1}`)
	story("beyond", []int64{2}, one, `{"$tb":100}`)
	story("both", []int64{2}, one, `{"$tb":1,"$maxCount":1}`)
	story("largest", all, one, `{"$maxCount":9223372036854775807,"$maxAge":9223372036854775807}`)
	s.remove(story("soft", []int64{2}, one), false)
	again := story("again", []int64{3, 4}, []int64{1})
	s.remove(again, false)
	s.write(again, 9000, 2)
	s.remove(story("hard", []int64{tombstone}, nil, `{"a":1}`), true)
	links := story("links", []int64{0, 1, 2, 3, 4}, nil)
	s.do(http.MethodPost, "/streams/"+links, `[{"eventId":"`+uuidOf(9100)+`","eventType":"$>","data":"0@x-count"},{"eventId":"`+uuidOf(9101)+`","eventType":"$>","data":"0@x-hard"}]`, http.StatusCreated)
	streams := slices.Sorted(maps.Keys(want))
	streams = slices.DeleteFunc(streams, func(name string) bool { return strings.HasPrefix(name, "$$") })
	told := s.answers(streams)

	retry := func(when string) {
		t.Helper()
		if n, err := s.write(retried, 101, 3, "ES-ExpectedVersion", "-1").FirstNumber(retried); n != 0 || err != nil {
			t.Errorf("%s: a write tried again: %d, %v", when, n, err)
		}
		s.do(http.MethodPost, "/streams/"+retried, batchOf("ev", "{}", 9200, 1), http.StatusBadRequest, "ES-ExpectedVersion", "0")
	}
	check := func(when string) {
		t.Helper()
		retry(when)
		check.Deep(t, s.numbers(), want, when, "$all has")
		for path, answer := range s.answers(streams) {
			check.Equal(t, told[path], answer, when, path, "is ..., not")
		}
	}
	s.scavenge("", "Success")
	check("after the run")
	s.Stop()
	verifyClean(t, s.dir)
	s.start()
	check("after a restart")
	s.Stop()
	if err := os.RemoveAll(filepath.Join(s.dir, "index")); err != nil {
		t.Fatal(err)
	}
	s.start()
	check("with a new index")
	s.scavenge("?threshold=-1&threads=4", "Success")
	check("scavenged once more")
	s.Stop()
	verifyClean(t, s.dir)
}

// TestScavengeRecord: what a node tells of runs, that a weight equal to the threshold suffices, and
// how a run that was killed ends.
func TestScavengeRecord(t *testing.T) {
	t.Parallel()
	s := startScavenged(t)
	s.write("x-a", 1, 11)
	s.describe("x-a", `{"$maxCount":1}`, 100)
	types := func(events []testkit.Entry) (types []string) {
		for _, e := range events {
			types = append(types, strings.TrimSuffix(strings.TrimPrefix(e.Type, "$scavenge"), "Completed"))
		}
		return slices.Compact(types)
	}
	events := s.history(s.scavenge("?threshold=21", "Success")) // Ten events weigh 20.
	check.Slice(t, types(events), []string{"Started", "Index", ""}, "below the threshold")
	if !strings.Contains(s.Stderr(), "chunk skipped with weight 20") {
		t.Error("the log does not have the weight of the chunk that was skipped")
	}
	if got := s.numbers()["x-a"]; len(got) != 11 {
		t.Errorf("below the threshold $all has %v", got)
	}
	s.describe("x-a", `{}`, 101) // A decision is not taken back, and weighs two more.
	if got, err := s.ReadStream(t.Context(), "x-a", 0); err != nil || len(got) != 1 {
		t.Errorf("metadata loosened: %v, %v", got, err)
	}
	id := s.scavenge("?threshold=22", "Success")
	events = s.history(id)
	if got := types(events); !slices.Equal(got, []string{"Started", "Chunks", "Merge", "Index", ""}) {
		t.Errorf("at the threshold: %q", got)
	}
	check.Slice(t, s.numbers()["x-a"], []int64{10}, "at the threshold $all has")
	span := regexp.MustCompile(`^\d\d:\d\d:\d\d(\.\d+)?$`)
	saved := 0.0
	for i, e := range events {
		var d map[string]any
		check.Must(t, json.Unmarshal([]byte(e.Data), &d))
		if took, ok := d["timeTaken"].(string); d["scavengeId"] != id || d["nodeEndpoint"] != "127.0.0.1:2113" || ok == (i == 0) || ok && !span.MatchString(took) {
			t.Errorf("%s: %s", e.Type, e.Data)
		}
		if i == len(events)-1 {
			if text, there := d["error"]; d["result"] != "Success" || text != nil || !there || d["spaceSaved"] != saved {
				t.Errorf("%s: %s, saved %v", e.Type, e.Data, saved)
			}
		} else if more, ok := d["spaceSaved"].(float64); ok {
			saved += more
		}
	}

	// After a kill the next process completes the history of the interrupted run, and resumes the
	// run at its point.
	points := func() int {
		got := check.Value(s.ReadStream(t.Context(), "$scavengePoints", 0)).Must(t)
		return len(got)
	}
	large := `{"fill":"` + strings.Repeat("x", 1000) + `"}`
	for n := range 10 {
		s.do(http.MethodPost, "/streams/x-b", batchOf("ev", large, 10000+1000*n, 1000), http.StatusCreated)
	}
	var run scavengeRun
	check.Must(t, json.Unmarshal(s.do(http.MethodPost, "/admin/scavenge?throttlePercent=1", "", http.StatusOK).Body, &run))
	testkit.Eventually(t, settleLimit, func() error {
		if got, err := s.ReadStream(t.Context(), "$scavenges-"+run.ID, 0); err != nil || len(got) == 0 || points() != 3 {
			return fmt.Errorf("%v, %v", got, err)
		}
		return nil
	})
	s.do(http.MethodPost, "/admin/scavenge", "", http.StatusBadRequest)
	s.Kill()
	s.start()
	var end struct{ Result, Error string }
	events = s.history(run.ID)
	if err := json.Unmarshal([]byte(events[len(events)-1].Data), &end); err != nil || end.Result != "Failed" || end.Error != "The node was restarted." {
		t.Errorf("after the kill: %+v, %v", end, err)
	}
	s.scavenge("", "Success")
	check.Equal(t, points(), 3, "scavenge points after going on")
	s.Stop()
	verifyClean(t, s.dir)
}

// TestScavengePointsHidden: what metadata of their stream say, points are made and found.
func TestScavengePointsHidden(t *testing.T) {
	t.Parallel()
	s := startScavenged(t)
	for n, document := range []string{`{}`, `{"$tb":1000}`, `{"$maxCount":1}`, `{"$tb":9223372036854775807}`} {
		s.describe("$scavengePoints", document, n+1)
		s.scavenge("", "Success")
	}
	s.Stop()
	verifyClean(t, s.dir)
}
