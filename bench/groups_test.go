package bench_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// fakeGroups is the groups of a fake node, and how they misbehave.
type fakeGroups struct {
	groups   map[string]*fakeGroup
	settings []string // of the groups created
	deleted  int

	empty    int    // how many reads find nothing first
	again    int    // how many messages are handed out twice
	refuse   int    // how many acknowledgements are refused first
	stranger string // id of the first message instead of its own
}

type fakeGroup struct {
	next  int
	again []int           // events handed out that come once more
	out   map[string]bool // ids without an answer
}

func (f *fakeGroups) serve(n *fakeNode, w http.ResponseWriter, r *http.Request, stream, group string, rest []string, body []byte) {
	key := stream + "/" + group
	g := f.groups[key]
	switch {
	case r.Method == http.MethodPut && g == nil:
		if f.groups == nil {
			f.groups = map[string]*fakeGroup{}
		}
		f.groups[key] = &fakeGroup{out: map[string]bool{}}
		f.settings = append(f.settings, string(body))
		w.WriteHeader(http.StatusCreated)
	case g == nil:
		n.complain("%s of the unknown group %s", r.Method, key)
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodDelete:
		delete(f.groups, key)
		f.deleted++
	case r.Method == http.MethodGet && len(rest) == 1:
		count, err := strconv.Atoi(rest[0])
		if err != nil || count < 1 || count > 100 || r.URL.RawQuery != "embed=body" || r.Header.Get("Accept") != "application/vnd.eventstore.competingatom+json" {
			n.complain("read %s as %s", r.URL, r.Header.Get("Accept"))
		}
		f.read(n, g, w, r, key, n.streams[stream], count)
	case r.Method == http.MethodPost && len(rest) == 1 && rest[0] == "ack":
		if f.refuse > 0 {
			f.refuse--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		for id := range strings.SplitSeq(r.URL.Query().Get("ids"), ",") {
			if !g.out[id] {
				n.complain("acknowledged %s, which is not out", id)
			}
			delete(g.out, id)
		}
		w.WriteHeader(http.StatusAccepted)
	default:
		n.complain("%s %s", r.Method, r.URL)
	}
}

// read hands out messages, those that come again first.
func (f *fakeGroups) read(n *fakeNode, g *fakeGroup, w http.ResponseWriter, r *http.Request, key string, events []fakeEvent, count int) {
	type link struct {
		URI      string `json:"uri"`
		Relation string `json:"relation"`
	}
	type entry struct {
		Summary    string `json:"summary"`
		RetryCount int    `json:"retryCount"`
		Data       string `json:"data"`
	}
	var doc struct {
		Links   []link  `json:"links"`
		Entries []entry `json:"entries"`
	}
	var ids []string
	hand := func(number, retries int) {
		id := events[number].id
		if f.stranger != "" {
			id, f.stranger = f.stranger, ""
		}
		ids = append(ids, id)
		g.out[id] = true
		// The data tries to look like a message that was retried.
		doc.Entries = append(doc.Entries, entry{Summary: "s", RetryCount: retries, Data: `{"retryCount":3,"summary":1}`})
	}
	if f.empty > 0 {
		f.empty--
		count = 0
	}
	for len(ids) < count && len(g.again) > 0 {
		hand(g.again[0], 1)
		g.again = g.again[1:]
	}
	for len(ids) < count && g.next < len(events) {
		hand(g.next, 0)
		if f.again > 0 {
			f.again--
			g.again = append(g.again, g.next)
		}
		g.next++
	}
	base := "http://" + r.Host + "/subscriptions/" + key
	if len(ids) > 0 {
		doc.Links = append(doc.Links, link{base + "/ack?ids=" + strings.Join(ids, ","), "ackAll"}, link{base + "/nack?ids=" + strings.Join(ids, ","), "nackAll"})
	}
	doc.Links = append(doc.Links, link{base + "/" + fmt.Sprint(count), "previous"}, link{base, "self"})
	slices.Reverse(doc.Entries)
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		n.complain("messages: %v", err)
	}
	_, _ = w.Write(text)
}
