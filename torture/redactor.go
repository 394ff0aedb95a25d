package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/vfs"
)

const (
	redactPath = "/admin/redact"
	// redactLimit bounds how long one redaction may take: it waits for readers.
	redactLimit = 15 * time.Second
	// searched is how many bytes of an event are looked for: its id, which no other has, and the
	// name of the member.
	searched = 55
)

// redactor is an administrator who blanks the data of events, on one node or on all. It redacts
// only events of contested streams: projections skip data that are not JSON, and consumers check
// the data that they get.
type redactor struct {
	worker
	done []redaction
}

// redaction is one that a node says it has done.
type redaction struct {
	node int
	of   ref
	name string
	at   int64
}

func newRedactor(l *load) *redactor {
	r := &redactor{worker: l.worker(redactions)}
	l.employ(r.turn)
	return r
}

func (r *redactor) turn(ctx context.Context) time.Duration {
	if of, name, ok := r.some(); ok {
		r.book.blanked(of)
		list := r.targets.all()
		for n, i := range r.rng.Perm(len(list)) {
			if n > 0 && r.rng.IntN(3) > 0 {
				break
			}
			r.redact(ctx, list[i], of, name)
		}
	}
	return r.pause(200, 1500)
}

// some returns an event that a reader was shown.
func (r *redactor) some() (of ref, name string, ok bool) {
	i := r.rng.IntN(registers)
	r.mu.Lock()
	generation := r.register[i].generation
	r.mu.Unlock()
	stream := r.book.stream(fmt.Sprintf("%s%s%d-%d", r.prefix, registerStream, i, r.rng.IntN(generation+1)))
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	refs := stream.shown
	if len(refs) == 0 {
		return 0, "", false
	}
	// The newest are in a chunk that is still being written.
	number := r.rng.IntN(len(refs)) * 3 / 4
	of = refs[number]
	return of, fmt.Sprintf("%d@%s", number, stream.name), of != 0 && !of.isForeign()
}

func (r *redactor) redact(ctx context.Context, t Target, of ref, name string) {
	body, err := json.Marshal(map[string]any{"events": []string{name}, "reason": "torture"})
	if err != nil {
		return
	}
	r.count.add(ofRedactions, "asked", 1)
	at := r.hist.now()
	a, err := exchange(ctx, r.http, t, client.Request{Method: http.MethodPost, Path: redactPath, Header: map[string]string{"Content-Type": client.MediaJSON, "Accept": client.MediaJSON}, Body: body}, redactLimit)
	switch {
	case err != nil || a.Status >= 500: // Or the node still works on it.
		r.count.add(ofRedactions, "unknown", 1)
	case a.Status == http.StatusBadRequest: // As a rule the chunk was still being written.
		r.count.add(ofRedactions, "refused", 1)
	case a.Status == http.StatusOK && (bytes.Contains(a.Body, []byte(`"redacted"`)) || bytes.Contains(a.Body, []byte(`"already"`))):
		r.count.add(ofRedactions, "done", 1)
		r.done = append(r.done, redaction{node: t.Index, of: of, name: name, at: at})
	default:
		r.find.add(kindAnswer, "POST %s for %s: %s", redactPath, name, a)
	}
}

// search looks for redacted data in all files of the nodes that redacted them. A node whose disk
// was destroyed since has data of other nodes. The nodes have ended.
func (r *redactor) search(c Cluster, wiped map[int]int64) error {
	byNode := map[int][]redaction{}
	for _, one := range r.done {
		if one.at > wiped[one.node] {
			byNode[one.node] = append(byNode[one.node], one)
		}
	}
	for node, list := range byNode {
		r.count.add(ofRedactions, "searched", len(list))
		texts := make([][]byte, len(list))
		for i, one := range list {
			data := r.ids.data(one.of)
			texts[i] = []byte(data[:min(searched, len(data))])
		}
		files, folder := c.Disk(node)
		err := eachFile(files, folder, func(path string) error {
			b, err := vfs.ReadFile(files, path)
			if err != nil {
				return err
			}
			r.count.add(ofRedactions, "bytes", len(b))
			for i, text := range texts {
				if at := bytes.Index(b, text); at >= 0 {
					r.find.add(kindRedacted, "%s says at %s that it redacted %s, and %s has its data at byte %d", nodeName(node), seconds(list[i].at), list[i].name, path, at)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachFile calls visit for each file in a folder and those below.
func eachFile(files vfs.FS, folder string, visit func(path string) error) error {
	names, err := files.List(folder)
	for _, name := range names {
		path := filepath.Join(folder, name)
		switch info, statErr := files.Stat(path); {
		case statErr != nil:
			err = errors.Join(err, statErr)
		case info.IsDir():
			err = errors.Join(err, eachFile(files, path, visit))
		case info.Mode().IsRegular():
			err = errors.Join(err, visit(path))
		}
	}
	return err
}
