package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// What TestLongScale fills a node with. scripts/scale.sh gives it more than the few events of a
// test.
var (
	scaleEvents  = flag.Int("scale-events", 20_000, "events of TestLongScale")
	scaleStreams = flag.Int("scale-streams", 0, "streams that have them; 0: one for 1,000 events")
	scaleTags    = flag.Int("scale-tags", 0, "tags that they have, one each; 0: one for 1,000 events")
	scaleSize    = flag.Int("scale-size", 100, "bytes of data of an event")
	scaleCopies  = flag.Bool("scale-copies", true, "make a backup and a follower, which need as much disk again")
)

// scaleLimit bounds each step of a large measurement.
const scaleLimit = 2 * time.Hour

// scaled is a node whose size is measured.
type scaled struct {
	*testkit.Process
	t       *testing.T
	dir     string
	streams int
}

// TestLongScale fills a node, and prints what its events cost: memory, files, and the time of what
// grows with them. Each step must work; how long it takes is not judged.
func TestLongScale(t *testing.T) {
	t.Parallel()
	if _, err := procfs.Self(); err != nil {
		t.Skipf("the memory of a process is not known here: %v", err)
	}
	s := &scaled{t: t, dir: t.TempDir(), streams: *scaleStreams}
	if s.streams == 0 {
		s.streams = max(1, *scaleEvents/1000)
	}
	fmt.Printf("%s events of %d bytes, %s streams, one tag each\n", grouped(*scaleEvents), *scaleSize, grouped(s.streams))
	s.start("--run-projections=All")
	s.empty()
	s.fill()
	s.grouped()
	s.projected()
	s.restarted()
	s.files("files")
	if *scaleCopies {
		s.backedUp()
		s.caughtUp()
	}
	s.Stop()
	s.rebuilt()
	s.scavenged()
	s.files("files after the scavenge")
	s.Stop()
}

// row prints a figure as soon as it is there.
func (s *scaled) row(what, figure string, args ...any) {
	fmt.Printf("%-74s %s\n", what, fmt.Sprintf(figure, args...))
}

// grouped is a number with commas.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// start starts the node and waits until it reads an event, or says that there is none.
func (s *scaled) start(options ...string) (took time.Duration) {
	s.t.Helper()
	begun := time.Now()
	s.Process = testkit.LaunchNode(s.t, filepath.Join(s.dir, "db"), options...)
	if err := s.ServingWithin(scaleLimit); err != nil {
		s.t.Fatal(err)
	}
	s.await(func() error {
		answer, err := s.Do(s.t.Context(), testkit.Request{Path: "/streams/" + s.stream(0) + "/0", Header: map[string]string{"Accept": testkit.MediaJSON}})
		if err == nil && answer.Status != http.StatusOK && answer.Status != http.StatusNotFound {
			err = errors.New(answer.String())
		}
		return err
	})
	return time.Since(begun)
}

func (s *scaled) await(try func() error) {
	s.t.Helper()
	testkit.Eventually(s.t, scaleLimit, try)
}

// memory is what the process has of its own, in MiB: pages of mapped files are the system's.
func (s *scaled) memory() float64 {
	s.t.Helper()
	status := check.Value(check.Value(procfs.NewProc(s.PID())).Must(s.t).NewStatus()).Must(s.t)
	return float64(status.RssAnon) / (1 << 20)
}

// peak runs something and returns the most memory that the process was seen to have meanwhile.
func (s *scaled) peak(f func()) (most float64, took time.Duration) {
	s.t.Helper()
	done := make(chan struct{})
	begun := time.Now()
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			most = max(most, s.memory())
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	f()
	took = time.Since(begun)
	close(done)
	watching.Wait()
	return most, took
}

func (s *scaled) empty() { s.row("memory of a node without events", "%.0f MiB", s.memory()) }

// stream is the name of one of the streams, which are in 100 categories.
func (s *scaled) stream(n int) string { return fmt.Sprintf("cat%02d-%d", n%100, n) }

// fill writes the events, up to 1,000 with each request.
func (s *scaled) fill() {
	t := s.t
	t.Helper()
	tags := *scaleTags
	if tags == 0 {
		tags = max(1, *scaleEvents/1000)
	}
	each := max(1, *scaleEvents/s.streams)
	data := strings.Repeat("x", max(0, *scaleSize-len(`{"f":""}`)))
	most, took := s.peak(func() {
		s.inParallel(func(stream int) error {
			var body bytes.Buffer
			for from := 0; from < each; from += 1000 {
				body.Reset()
				for i := from; i < min(from+1000, each); i++ {
					n := stream*each + i
					separator := byte(',')
					if i == from {
						separator = '['
					}
					body.WriteByte(separator)
					fmt.Fprintf(&body, `{"eventId":"00000000-0000-4000-8000-%012x","eventType":"Type%d","data":{"f":"%s"},"tags":["t:%d"]}`, n, n%200, data, n%tags)
				}
				body.WriteByte(']')
				answer, err := s.Do(t.Context(), testkit.Request{Method: http.MethodPost, Path: "/streams/" + s.stream(stream), Body: body.Bytes(), Header: map[string]string{"Content-Type": testkit.MediaEvents}})
				if err == nil && answer.Status != http.StatusCreated {
					err = errors.New(answer.String())
				}
				if err != nil {
					return fmt.Errorf("write to %s: %w", s.stream(stream), err)
				}
			}
			return nil
		})
	})
	s.row("filled", "%.0f s, %.0f events/s, at most %.0f MiB of memory", took.Seconds(), float64(*scaleEvents)/took.Seconds(), most)
}

// inParallel does something for each stream, for four of them at a time.
func (s *scaled) inParallel(do func(stream int) error) {
	s.t.Helper()
	var next atomic.Int64
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for errs[i] == nil {
				stream := int(next.Add(1) - 1)
				if stream >= s.streams {
					return
				}
				errs[i] = do(stream)
			}
		})
	}
	wg.Wait()
	check.Must(s.t, errors.Join(errs...))
}

// indexed waits until the index of categories, types and tags has the whole log.
func (s *scaled) indexed() {
	s.t.Helper()
	s.await(func() error {
		var index struct {
			State            string
			Position, LogEnd int64
		}
		answer, err := s.Do(s.t.Context(), testkit.Request{Path: "/index", Admin: true})
		if err == nil {
			err = json.Unmarshal(answer.Body, &index)
		}
		if err == nil && index.State != "live" {
			err = fmt.Errorf("the index is %s at %d of %d", index.State, index.Position, index.LogEnd)
		}
		return err
	})
}

// grouped makes groups, whose buffers read ahead.
func (s *scaled) grouped() {
	count := min(100, s.streams)
	before := s.memory()
	for i := range count {
		newGroup(s.t, s.Client, s.stream(i), fmt.Sprint("g", i), settings{"startFrom": 0})
	}
	for i := range count {
		g := &group{s.t, s.Client, s.stream(i), fmt.Sprint("g", i)}
		g.takeUntil(1)
	}
	s.row(fmt.Sprint(count, " groups"), "%.1f MiB more memory", s.memory()-before)
	for i := range count {
		(&group{s.t, s.Client, s.stream(i), fmt.Sprint("g", i)}).must(http.MethodDelete, nil)
	}
}

// projected runs a projection of the whole log for a while.
func (s *scaled) projected() {
	before := s.memory()
	q := &query{t: s.t, name: "count", do: atNode(s.t, s.Client)}
	q.must(http.StatusCreated, http.MethodPost, "/projections/continuous?name=count&enabled=yes", `fromAll().when({$init: function() { return {n: 0}; }, $any: function(s) { s.n++; return s; }})`)
	begun := time.Now()
	var done int64
	most, _ := s.peak(func() {
		s.await(func() error {
			if done = q.info().Processed; done < int64(*scaleEvents) && time.Since(begun) < 20*time.Second {
				return fmt.Errorf("the projection has handled %d events", done)
			}
			return nil
		})
	})
	s.row("a projection of all events", "%.0f events/s, %.0f MiB more memory", float64(done)/time.Since(begun).Seconds(), most-before)
	q.command("disable")
	q.must(http.StatusNoContent, http.MethodDelete, q.path("?deleteStateStream=yes&deleteCheckpointStream=yes"), "")
}

func (s *scaled) restarted() {
	begun := time.Now()
	s.Stop()
	s.row("stop", "%.2f s", time.Since(begun).Seconds())
	took := s.start()
	s.row("start", "%.2f s, %.0f MiB of memory", took.Seconds(), s.memory())
	// The ids of the newest events are read after the start.
	s.indexed()
}

// size is the sum of files that a node has, and how many they are.
func (s *scaled) size(pattern string) (bytes int64, files int) {
	s.t.Helper()
	for _, path := range check.Value(filepath.Glob(filepath.Join(s.dir, "db", pattern))).Must(s.t) {
		check.Must(s.t, filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() {
				return nil // A merge of tables has ended.
			}
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				bytes, files = bytes+info.Size(), files+1
			}
			return err
		}))
	}
	return bytes, files
}

func (s *scaled) files(when string) {
	for _, part := range []struct{ what, pattern string }{
		{"log", "chunk-*"}, {"index of streams", "index/*-*-*-*-*"}, {"filter of known streams", "index/stream-existence"},
		{"index of categories, types and tags", "index/postings"}, {"Raft log", "raft"},
	} {
		bytes, files := s.size(part.pattern)
		s.row(when+": "+part.what, "%.0f MB in %d files, %.1f bytes an event", float64(bytes)/1e6, files, float64(bytes)/float64(*scaleEvents))
	}
}

func (s *scaled) backedUp() {
	to := filepath.Join(s.dir, "backup")
	begun := time.Now()
	p := testkit.Launch(s.t, testkit.Command{
		Args: []string{"backup", "create", "--node", s.URL(), "--to", to, "--throttle-mib", "0"}, Env: []string{"ANNALS_PASSWORD=changeit"},
	})
	check.MustEqual(s.t, p.Wait(scaleLimit), 0, "exit code of the backup")
	took := time.Since(begun)
	bytes := int64(0)
	check.Must(s.t, filepath.WalkDir(to, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, failed := d.Info()
			if err = failed; err == nil {
				bytes += info.Size()
			}
		}
		return err
	}))
	s.row("full backup", "%.1f s, %.0f MB, %.0f MB/s", took.Seconds(), float64(bytes)/1e6, float64(bytes)/1e6/took.Seconds())
	remove(s.t, to)
}

// caughtUp makes the node the first of a cluster, and waits until a second one, empty at first, has
// all that it has.
func (s *scaled) caughtUp() {
	t := s.t
	t.Helper()
	s.Stop()
	var ports [2]string
	for i := range ports {
		l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
		check.Must(t, l.Close())
	}
	member := func(db string, i int) *testkit.Process {
		p := testkit.LaunchNode(t, db, "--insecure", "--cluster-size=3", "--replication-ip=127.0.0.1", "--discover-via-dns=false",
			"--replication-port="+ports[i], "--gossip-seed=127.0.0.1:"+ports[1-i])
		p.AwaitServing()
		return p
	}
	s.Process = member(filepath.Join(s.dir, "db"), 0)
	bytes, _ := s.size("chunk-*")
	begun := time.Now()
	other := member(filepath.Join(s.dir, "other"), 1)
	s.await(func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answer, err := other.Do(ctx, testkit.Request{Path: "/info"})
		if err == nil && !strings.Contains(string(answer.Body), `"state": "follower"`) {
			err = errors.New("the second node does not follow yet")
		}
		return err
	})
	took := time.Since(begun)
	s.row("an empty follower has all", "%.1f s, %.0f MB/s", took.Seconds(), float64(bytes)/1e6/took.Seconds())
	other.Stop()
	s.Stop()
	remove(t, filepath.Join(s.dir, "other"))
	remove(t, filepath.Join(s.dir, "db", "raft"))
	s.start() // It makes its consensus state again, which takes a second.
}

// rebuilt starts without the indexes.
func (s *scaled) rebuilt() {
	remove(s.t, filepath.Join(s.dir, "db", "index"))
	begun := time.Now()
	serving := s.start()
	most, _ := s.peak(s.indexed)
	s.row("index of streams made again", "%.1f s until the node serves", serving.Seconds())
	s.row("index of categories, types and tags made again", "%.1f s after that, next to a node that serves, at most %.0f MiB of memory", (time.Since(begun) - serving).Seconds(), most)
}

// scavenged deletes half of the streams and scavenges.
func (s *scaled) scavenged() {
	t := s.t
	t.Helper()
	s.inParallel(func(stream int) error {
		if stream%2 != 0 {
			return nil
		}
		answer, err := s.Do(t.Context(), testkit.Request{Method: http.MethodDelete, Path: "/streams/" + s.stream(stream)})
		if err == nil && answer.Status != http.StatusNoContent {
			err = errors.New(answer.String())
		}
		return err
	})
	bytes, _ := s.size("chunk-*")
	var run scavengeRun
	most, took := s.peak(func() {
		must(t, s, testkit.Request{Method: http.MethodPost, Path: "/admin/scavenge?threshold=-1", Admin: true}, http.StatusOK)
		s.await(func() error {
			answer, err := s.Do(t.Context(), testkit.Request{Path: "/admin/scavenge/last", Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON}})
			if err == nil {
				err = json.Unmarshal(answer.Body, &run)
			}
			if err == nil && run.Result == "InProgress" {
				err = errors.New("the scavenge runs")
			}
			return err
		})
	})
	check.MustEqual(t, run.Result, "Success", "scavenge", run.Error)
	s.row("scavenge of half of the streams", "%.1f s, %.0f MB/s, %s events removed, at most %.0f MiB of memory",
		took.Seconds(), float64(bytes)/1e6/took.Seconds(), grouped(int(run.Removed)), most)
}
