package torture

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

const (
	watchEvery = 200 * time.Millisecond
	watchLimit = time.Second
	quietLooks = time.Minute // between looks when nothing strikes
	// twoLeadersAfter is how many looks in a row must show two leaders of one
	// term: state and term of one answer need not be of the same moment.
	twoLeadersAfter = 5
)

// view is what a node says of itself.
type view struct {
	state string // as /gossip spells it, "" when it did not answer
	term  int64
	id    string // "" when it did not say
}

func (v view) leads() bool { return v.state == "Leader" }

// watch asks all nodes again and again who they think they are.
type watch struct {
	http    *client.Client
	targets func() []Target
	find    *findings
	line    *timeline
	slow    float64 // as of the options
	spells  spells
	ours    bool // only this command starts nodes

	mu      sync.Mutex
	views   map[int]view
	ids     map[int]string  // that nodes had first, "" of those whose disks are destroyed
	lost    map[string]bool // ids before disks were destroyed: gossip may show them still
	out     map[int]int64   // since when a node is removed that still runs
	leader  int             // -1: no node says so
	term    int64
	changes int
	double  int // looks in a row with two leaders of one term
	calms   []calm
	still   bool // the last look was calm
	trouble int  // faults that are active
}

// calm is a time in which every look found all nodes answering, and one leader, the same.
type calm struct {
	from, to int64
	leader   int
	term     int64
}

func newWatch(h *client.Client, targets func() []Target, f *findings, line *timeline) *watch {
	return &watch{http: h, targets: targets, find: f, line: line, views: map[int]view{}, ids: map[int]string{}, lost: map[string]bool{}, out: map[int]int64{}, leader: -1}
}

func (w *watch) run(ctx context.Context) {
	for next := time.Duration(0); clock.Sleep(ctx, next) == nil; {
		begun := w.line.now()
		w.look(ctx)
		next = slower(watchEvery, w.slow) - time.Duration(w.line.now()-begun)
		if _, quiet := w.spells.at(w.line.now()); quiet > 0 {
			next = min(time.Duration(quiet), max(next, quietLooks))
		}
	}
}

// look asks every node once.
func (w *watch) look(ctx context.Context) {
	list := w.targets()
	views := make([]view, len(list))
	begun := w.line.now()
	var asked sync.WaitGroup
	for i, t := range list {
		asked.Go(func() { views[i] = w.ask(ctx, t) })
	}
	asked.Wait()
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	leader, term, claims := -1, int64(-1), map[int64][]int{}
	for i, t := range list {
		w.views[t.Index] = views[i]
		if w.ours {
			w.known(t.Index, views[i].id)
		}
		if v := views[i]; v.leads() {
			if since, out := w.out[t.Index]; out && begun > since {
				w.find.add(kindOutcast, "%s was removed at %s, and says that it leads in term %d", t.Name, seconds(since), v.term)
			}
			claims[v.term] = append(claims[v.term], t.Index)
			if v.term > term {
				leader, term = t.Index, v.term
			}
		}
	}
	w.count(claims)
	w.calm(begun, views, claims, leader, term)
	switch {
	case leader == w.leader && (leader < 0 || term == w.term):
		return
	case leader < 0:
		w.line.add(happenedLeader, "no node says that it is the leader")
	default:
		if term != w.term {
			w.changes++
		}
		w.line.add(happenedLeader, "%s leads in term %d", nodeName(leader), term)
		w.term = term
	}
	w.leader = leader
}

// known finds a node that has an id other than before: then it has lost what it voted and
// promised, and the others took it for a new one. w.mu is held.
func (w *watch) known(node int, id string) {
	switch first, ok := w.ids[node]; {
	case strings.Trim(id, "0-") == "": // It starts.
	case w.lost[id] || first == id || ok && first == "":
	case !ok:
		w.ids[node] = id
	default:
		w.ids[node] = ""
		w.find.add(kindRenewed, "%s has lost its consensus state, no fault having destroyed it: its id was %s and is %s", nodeName(node), first, id)
	}
}

// renewed says that a node loses its id, and may have any other until it has settled.
func (w *watch) renewed(node int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost[w.ids[node]], w.lost[w.views[node].id] = true, true
	w.ids[node] = ""
}

// isOut says whether a node was removed, and still runs.
func (w *watch) isOut(node int, out bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.out, node); out {
		w.out[node] = w.line.now()
	}
}

// settled says that a node keeps its id again.
func (w *watch) settled(node int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ids, node)
}

// count looks for two leaders of one term. w.mu is held.
func (w *watch) count(claims map[int64][]int) {
	for term, nodes := range claims {
		if len(nodes) < 2 || term == 0 {
			continue
		}
		if w.double++; w.double == twoLeadersAfter {
			w.find.add(kindLeaders, "nodes %v say that they are the leader of term %d", nodes, term)
		}
		return
	}
	w.double = 0
}

// calm notes a look. A time begins when its first look has ended and ends when its last one begins.
// w.mu is held.
func (w *watch) calm(begun int64, views []view, claims map[int64][]int, leader int, term int64) {
	// Slow looks may miss a fault that is short.
	still := leader >= 0 && len(claims) == 1 && len(claims[term]) == 1 && (w.slow == 0 || w.trouble == 0)
	for _, v := range views {
		still = still && v.state != ""
	}
	last := len(w.calms) - 1
	switch {
	case still && w.still && w.calms[last].leader == leader && w.calms[last].term == term:
		w.calms[last].to = begun
	case still && len(w.calms) < keptHappenings:
		now := w.line.now()
		w.calms = append(w.calms, calm{now, now, leader, term})
	default:
		still = false
	}
	w.still = still
}

// troubled says that so many more faults are active.
func (w *watch) troubled(more int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble += more
	w.still = w.still && w.slow == 0
}

// wasCalm says whether one node led all that time and no other can have thought so of itself.
func (w *watch) wasCalm(from, to int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := sort.Search(len(w.calms), func(i int) bool { return w.calms[i].to >= to })
	return i < len(w.calms) && w.calms[i].from <= from
}

// leading returns the leader and its term, -1 when there is none.
func (w *watch) leading() (node int, term int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leader, w.term
}

// leads returns the leader, if it is in a list of nodes.
func (w *watch) leads(list []Target) (Target, bool) {
	leader, _ := w.leading()
	i := slices.IndexFunc(list, func(t Target) bool { return t.Index == leader })
	if i < 0 {
		return Target{}, false
	}
	return list[i], true
}

func (w *watch) view(node int) view {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.views[node]
}

func (w *watch) leaderChanges() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(w.changes-1, 0) // The first leader is not a change.
}

// ask returns what a node says of itself, the zero view when it does not.
func (w *watch) ask(ctx context.Context, t Target) view {
	a, err := exchange(ctx, w.http, t, client.Request{Method: http.MethodGet, Path: "/gossip", Header: map[string]string{"Accept": client.MediaJSON}}, watchLimit)
	if err != nil {
		return view{}
	}
	if a.Status == http.StatusNotFound {
		return w.askInfo(ctx, t)
	}
	var g struct {
		Members []client.Member `json:"members"`
		IP      string          `json:"serverIp"`
		Port    int             `json:"serverPort"`
	}
	if a.Status != http.StatusOK || json.Unmarshal(a.Body, &g) != nil {
		return view{}
	}
	self := net.JoinHostPort(g.IP, strconv.Itoa(g.Port))
	for _, m := range g.Members {
		if !m.Alive {
			continue // A node that was replaced stays in gossip for a while, at the same address.
		}
		if at := m.Address(); at == self || strings.HasSuffix(t.Base, "//"+at) {
			return view{m.State, m.Term, m.ID}
		}
	}
	return view{}
}

// askInfo asks a node without /gossip for its state alone.
func (w *watch) askInfo(ctx context.Context, t Target) view {
	a, err := exchange(ctx, w.http, t, client.Request{Method: http.MethodGet, Path: "/info"}, watchLimit)
	var info struct {
		State string `json:"state"`
	}
	if err != nil || a.Status != http.StatusOK || json.Unmarshal(a.Body, &info) != nil || info.State == "" {
		return view{}
	}
	return view{state: strings.ToUpper(info.State[:1]) + info.State[1:]}
}
