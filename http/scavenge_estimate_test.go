package httpapi_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

func TestScavengeEstimate(t *testing.T) {
	n := newOperator(t)
	formats := map[string]string{"json": appJSON, "xml": textXML, "txt": "text/plain"}
	for format, accept := range formats {
		n.scavenges.estimate = someEstimate()
		n.goldenPost(t, "scavenge-estimate."+format, "/admin/scavenge?dryRun=true&threshold=10", accept)
		n.scavenges.estimate = scavenge.Estimate{}
		n.goldenPost(t, "scavenge-estimate-empty."+format, "/admin/scavenge?dryRun=true", accept)
	}
}

// pieces is an answer as it is written.
type pieces struct {
	*httptest.ResponseRecorder
	longest, count int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.longest, p.count = max(p.longest, len(b)), p.count+1
	return p.ResponseRecorder.Write(b)
}

// TestScavengeEstimateOfMuch sends a long answer in parts, in every format.
func TestScavengeEstimateOfMuch(t *testing.T) {
	const chunks, streams = 20_000, 1000
	n := newOperator(t)
	e := &n.scavenges.estimate
	for i := range chunks {
		e.Chunks = append(e.Chunks, scavenge.ChunkEstimate{File: fmt.Sprintf("chunk-%06d.000000", i), First: i, Last: i, Events: int64(i)})
	}
	for i := range streams {
		name := fmt.Sprintf("%d-%s", i, strings.Repeat("<\n", 500))
		e.Streams = append(e.Streams, scavenge.StreamEstimate{Stream: name, Bytes: int64(i)})
		e.Kept = append(e.Kept, scavenge.StreamEstimate{Stream: name, Bytes: int64(i)})
	}
	for _, accept := range []string{appJSON, appXML, "text/plain"} {
		r := httptest.NewRequest("POST", base+"/admin/scavenge?dryRun=true", nil)
		r.Header = headersWith(accept)
		w := &pieces{ResponseRecorder: httptest.NewRecorder()}
		n.handler.ServeHTTP(w, r)
		body := w.Body.Bytes()
		check.Equal(t, w.Code, 200, "status")
		check.Equal(t, w.Result().Header.Get("Content-Length"), "", "length")
		if w.longest > 128<<10 || w.count < len(body)/w.longest {
			t.Errorf("%s: %d bytes in %d parts, the longest of %d", accept, len(body), w.count, w.longest)
		}
		switch accept {
		case appJSON:
			var got scavenge.Estimate
			check.Must(t, json.Unmarshal(body, &got))
			check.Equal(t, len(got.Chunks), chunks, "chunks")
			for i := range got.Chunks {
				check.Equal(t, got.Chunks[i], e.Chunks[i], "chunk")
			}
			for i := range streams {
				check.Equal(t, got.Streams[i], e.Streams[i], "stream")
				check.Equal(t, got.Kept[i], e.Kept[i], "kept")
			}
		case appXML:
			var got struct {
				XMLName xml.Name `xml:"ScavengeEstimateDto"`
				Chunks  struct {
					Chunk []struct {
						File   string
						Events int
					}
				}
				Streams, Kept struct {
					Item []struct {
						Stream string
						Bytes  int
					}
				}
			}
			check.Must(t, xml.Unmarshal(body, &got))
			check.Equal(t, len(got.Chunks.Chunk), chunks, "chunks")
			check.Equal(t, got.Chunks.Chunk[chunks-1].File, e.Chunks[chunks-1].File, "file")
			check.Equal(t, len(got.Streams.Item)+len(got.Kept.Item), 2*streams, "streams")
			check.Equal(t, got.Kept.Item[7].Stream, e.Kept[7].Stream, "name")
		default:
			check.Equal(t, strings.Count(string(body), "\n"), 1+3*3+chunks+2*streams, "lines")
		}
	}
}

// TestScavengeEstimateMayTakeLong: no time for requests cuts it.
func TestScavengeEstimateMayTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newOperator(t)
		n.scavenges.waiting = takes(5 * time.Hour)
		begin := time.Now()
		n.do("POST", "/admin/scavenge?dryRun=true", "", admin()).is(t, 200)
		check.Equal(t, time.Since(begin), 5*time.Hour, "answered after")
	})
}

// TestScavengeEstimateEndsWithServer: the node does not wait for it when it stops.
func TestScavengeEstimateEndsWithServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newOperator(t)
		n.scavenges.waiting = takes(time.Hour)
		begin := time.Now()
		time.AfterFunc(time.Minute, n.server.Drain)
		n.do("POST", "/admin/scavenge?dryRun=true", "", admin()).is(t, 503)
		check.Equal(t, time.Since(begin), time.Minute, "answered after")
	})
}

// TestScavengeEstimateEndsWithClient: an estimate ends when its client has gone.
func TestScavengeEstimateEndsWithClient(t *testing.T) {
	for _, body := range []string{"", "ignored", strings.Repeat("ignored", 200_000)} {
		n := newOperator(t, func(o *httpapi.Options) { o.LogRequests = true })
		began, ended := make(chan struct{}), make(chan error, 1)
		n.scavenges.waiting = func(ctx context.Context) error {
			close(began)
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		}
		ctx, cancel := context.WithCancel(context.Background())
		r, err := http.NewRequestWithContext(ctx, "POST", "http://"+listen(t, n.handler)+"/admin/scavenge?dryRun=true", strings.NewReader(body))
		check.Must(t, err)
		r.Header = admin()
		gone := make(chan error, 1)
		go func() {
			response, err := http.DefaultTransport.RoundTrip(r)
			if err == nil {
				err = response.Body.Close()
			}
			gone <- err
		}()
		<-began
		cancel()
		check.Fails(t, <-gone, "the request was answered")
		check.Equal(t, <-ended, context.Canceled)
	}
}
