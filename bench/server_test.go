package bench_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// fakeEvent is an event of the node that the tests run against.
type fakeEvent struct {
	id   string
	data string
}

// fakeNode speaks as much of the interface as the workloads need, and keeps streams in memory.
type fakeNode struct {
	mu       sync.Mutex
	streams  map[string][]fakeEvent
	leader   string // base of the node that takes writes, when it is another
	fail     int    // how many requests are answered 503 first
	user     string
	requests int
	seen     func(requests int) // called with every request, unless nil
	bad      []string           // requests that no correct driver sends
	groups   fakeGroups
}

func newFakeNode() *fakeNode { return &fakeNode{streams: map[string][]fakeEvent{}} }

func (n *fakeNode) complain(format string, args ...any) {
	n.bad = append(n.bad, fmt.Sprintf(format, args...))
}

func (n *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests++
	if n.seen != nil {
		n.seen(n.requests)
	}
	if err != nil {
		n.complain("body: %v", err)
	}
	if n.fail > 0 {
		n.fail--
		http.Error(w, "Server Is Too Busy", http.StatusServiceUnavailable)
		return
	}
	if user, _, _ := r.BasicAuth(); user != n.user {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) > 2 && parts[0] == "subscriptions" {
		n.groups.serve(n, w, r, parts[1], parts[2], parts[3:], body)
		return
	}
	if len(parts) < 2 || parts[0] != "streams" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	switch {
	case r.Method == http.MethodPost && n.leader != "":
		w.Header().Set("Location", n.leader+r.URL.Path)
		w.WriteHeader(http.StatusTemporaryRedirect)
	case r.Method == http.MethodPost:
		n.post(w, r, parts[1], body)
	default:
		n.get(w, r, parts[1], parts[2:])
	}
}

func (n *fakeNode) post(w http.ResponseWriter, r *http.Request, stream string, body []byte) {
	var events []fakeEvent
	switch r.Header.Get("Content-Type") {
	case "application/json":
		if r.Header.Get("ES-EventType") == "" || len(r.Header.Get("ES-EventId")) != 36 || !json.Valid(body) {
			n.complain("append of %q with %v", body, r.Header)
		}
		events = append(events, fakeEvent{id: r.Header.Get("ES-EventId"), data: string(body)})
	case "application/vnd.eventstore.events+json":
		var items []struct {
			EventID   string
			EventType string
			Data      json.RawMessage
		}
		if err := json.Unmarshal(body, &items); err != nil {
			n.complain("batch %q: %v", body, err)
		}
		for _, item := range items {
			if len(item.EventID) != 36 || item.EventType == "" || len(item.Data) == 0 {
				n.complain("batch item %+v", item)
			}
			events = append(events, fakeEvent{id: item.EventID, data: string(item.Data)})
		}
	default:
		n.complain("content type %q", r.Header.Get("Content-Type"))
	}
	has := n.streams[stream]
	first := len(has)
	if text := r.Header.Get("ES-ExpectedVersion"); text != "" {
		expected, err := strconv.Atoi(text)
		if err != nil {
			n.complain("expected version %q", text)
		}
		if expected != len(has)-1 {
			if first = expected + 1; !n.sameIDs(has, first, events) {
				w.Header().Set("ES-CurrentVersion", strconv.Itoa(len(has)-1))
				http.Error(w, "Wrong expected EventNumber", http.StatusBadRequest)
				return
			}
			events = nil
		}
	}
	n.streams[stream] = append(has, events...)
	w.Header().Set("Location", fmt.Sprintf("http://%s/streams/%s/%d", r.Host, stream, first))
	w.WriteHeader(http.StatusCreated)
}

func (n *fakeNode) sameIDs(has []fakeEvent, from int, events []fakeEvent) bool {
	if from+len(events) > len(has) {
		return false
	}
	for i := range events {
		if has[from+i].id != events[i].id {
			return false
		}
	}
	return true
}

func (n *fakeNode) get(w http.ResponseWriter, r *http.Request, stream string, rest []string) {
	events := n.streams[stream]
	if stream == "$all" {
		for i := 1; len(n.streams[fmt.Sprintf("bench-%06d", i)]) > 0; i++ {
			events = append(events, n.streams[fmt.Sprintf("bench-%06d", i)]...)
		}
	}
	if len(events) == 0 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	switch len(rest) {
	case 0:
		tag := fmt.Sprintf(`"%d;7"`, len(events)-1)
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		n.page(w, r, stream, events, max(0, len(events)-20), 20)
	case 1:
		number, err := strconv.Atoi(rest[0])
		if err != nil || number >= len(events) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, events[number].data)
	case 3:
		count, err := strconv.Atoi(rest[2])
		if err != nil {
			n.complain("count %q", rest[2])
		}
		from := len(events) - count
		if rest[1] == "forward" {
			if from, err = strconv.Atoi(strings.TrimLeft(rest[0], "0") + ""); rest[0] == strings.Repeat("0", len(rest[0])) {
				from, err = 0, nil
			}
			if err != nil {
				n.complain("number %q", rest[0])
			}
		}
		if r.URL.Query().Get("embed") != "body" {
			n.complain("page without bodies: %s", r.URL)
		}
		n.page(w, r, stream, events, max(0, from), count)
	}
}

// page writes the events from..from+count in the indented form of EventStoreDB.
func (n *fakeNode) page(w http.ResponseWriter, r *http.Request, stream string, events []fakeEvent, from, count int) {
	type link struct {
		URI      string `json:"uri"`
		Relation string `json:"relation"`
	}
	type entry struct {
		Title   string `json:"title"`
		Summary string `json:"summary"`
		Data    string `json:"data"`
		Links   []link `json:"links"`
	}
	to := min(len(events), from+count)
	doc := struct {
		Head    bool    `json:"headOfStream"`
		Links   []link  `json:"links"`
		Entries []entry `json:"entries"`
	}{Head: to == len(events) && stream != "$all"}
	base := "http://" + r.Host + "/streams/" + strings.ReplaceAll(stream, "$", "%24")
	doc.Links = append(doc.Links, link{base, "self"})
	if from < len(events) {
		format := "%d"
		if stream == "$all" {
			format = "%032d"
		}
		doc.Links = append(doc.Links, link{base + "/" + fmt.Sprintf(format, to) + "/forward/" + strconv.Itoa(count), "previous"})
	}
	for i := to - 1; i >= from; i-- {
		// The summary and the data try to look like members of the feed.
		doc.Entries = append(doc.Entries, entry{
			Title: fmt.Sprintf("%d@%s", i, stream), Summary: "previous",
			Data: `{"summary":"x","relation":"previous","headOfStream":true}` + events[i].data, Links: []link{{base, "edit"}},
		})
	}
	w.Header().Set("Content-Type", "application/vnd.eventstore.atom+json; charset=utf-8")
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		n.complain("page: %v", err)
	}
	_, _ = w.Write(text)
}

// silent is a server that answers nothing until it is released.
func silent(release <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
}
