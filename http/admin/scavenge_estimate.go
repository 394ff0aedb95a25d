package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/outline"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
)

// estimateScavenge answers with the estimate of a run. It may read the whole database: only the
// client's going and the end of the server limit it.
func (r *ScavengeHandlers) estimateScavenge(x *request.Request, o scavenge.EstimateOptions) error {
	// net/http notices that a client goes away only when the body has been read.
	if _, err := io.Copy(io.Discard, x.R.Body); err != nil {
		return problem.InvalidBody
	}
	ctx, cancel := context.WithCancel(x.R.Context())
	defer cancel()
	defer context.AfterFunc(x.Node.Draining, cancel)()
	e, err := r.Scavenges.Estimate(ctx, o)
	if err != nil {
		return err
	}
	h := x.W.Header()
	h[request.KeyContentType], h[caching.KeyVary], h[caching.KeyControl] = x.Media.ContentType, caching.VaryAccept, caching.Never
	answer := parts{x: x}
	if x.Media.Form == media.FormText {
		answer.send(appendEstimateText(x.Out[:0], e, answer.full))
		return nil
	}
	doc := x.NewOutline()
	doc.Full = answer.full
	estimate(&doc, e)
	answer.send(doc.B)
	return nil
}

// partBytes is how much of a long answer is kept before it is sent on its way.
const partBytes = 64 << 10

// parts sends an answer that may be long. One that is not goes out whole.
type parts struct {
	x     *request.Request
	begun bool
	gone  bool // the client is
}

// full takes the answer as far as it is written, and returns the buffer for the rest.
func (p *parts) full(b []byte) []byte {
	if len(b) < partBytes {
		return b
	}
	p.write(b)
	return b[:0]
}

func (p *parts) write(b []byte) {
	p.begun = true
	if p.gone {
		return
	}
	_, err := p.x.W.Write(b)
	p.gone = err != nil
	p.x.NotTaken(err)
}

// send sends the rest.
func (p *parts) send(b []byte) {
	p.x.Out = b
	if p.begun {
		p.write(b)
		return
	}
	p.x.Send(http.StatusOK, b)
}

// estimate writes the document of JSON or XML.
func estimate(o *outline.Writer, e *scavenge.Estimate) {
	stream := func(s scavenge.StreamEstimate) {
		o.Leaves(outline.Text("stream", s.Stream), outline.Int("events", s.Events), outline.Int("bytes", s.Bytes), outline.Text("why", s.Why))
	}
	o.Root("scavengeEstimateDto", func() {
		o.Leaves(outline.Int("end", e.End), outline.Int("threshold", int64(e.Threshold)), outline.Int("bytes", e.Bytes), outline.Int("events", e.Events))
		o.List("chunks", "chunk", len(e.Chunks), func(i int) { o.Leaves(chunkFields(&e.Chunks[i])...) })
		o.List("streams", "item", len(e.Streams), func(i int) { stream(e.Streams[i]) })
		o.List("kept", "item", len(e.Kept), func(i int) { stream(e.Kept[i]) })
		o.Leaves(outline.Int("tookMs", e.Took.Milliseconds()))
	})
}

func chunkFields(c *scavenge.ChunkEstimate) []outline.Field {
	return []outline.Field{
		outline.Text("file", c.File), outline.Int("first", int64(c.First)), outline.Int("last", int64(c.Last)), outline.Int("fileBytes", c.FileBytes),
		outline.Int("bytes", c.Bytes), outline.Int("events", c.Events), outline.Int("weight", c.Weight), outline.Bool("executed", c.Executed),
	}
}

// appendEstimateText appends the document for people: a sentence, and three tables.
func appendEstimateText(b []byte, e *scavenge.Estimate, full func([]byte) []byte) []byte {
	b = fmt.Appendf(b, "A scavenge with threshold %d at position %d would remove %d events of about %d bytes. Nothing was changed. It took %v to find out.\n",
		e.Threshold, e.End, e.Events, e.Bytes, e.Took.Round(time.Millisecond))
	stream := func(s scavenge.StreamEstimate) []outline.Field {
		return []outline.Field{
			outline.Int("bytes", s.Bytes), outline.Int("events", s.Events), outline.Text("stream", api.Printable(s.Stream)), outline.Text("why", api.Printable(s.Why)),
		}
	}
	for _, t := range []textTable{
		{"Chunk files", len(e.Chunks), func(i int) []outline.Field { return chunkFields(&e.Chunks[i]) }},
		{"Streams of which most would go", len(e.Streams), func(i int) []outline.Field { return stream(e.Streams[i]) }},
		{"Largest streams of which nothing would go", len(e.Kept), func(i int) []outline.Field { return stream(e.Kept[i]) }},
	} {
		b = t.append(append(b, '\n'), full)
	}
	return b
}

// textTable is a table in columns. Its rows are made twice, once to see how wide
// they are, and never kept: there may be very many.
type textTable struct {
	title string
	rows  int
	row   func(i int) []outline.Field
}

// maxColumn is the width that other rows are not widened beyond.
const maxColumn = 64

func (t *textTable) append(b []byte, full func([]byte) []byte) []byte {
	b = append(append(b, t.title...), '\n')
	if t.rows == 0 {
		return append(b, "none\n"...)
	}
	titles := t.row(0)
	width := make([]int, len(titles))
	for i := range titles {
		titles[i] = outline.Field{Name: titles[i].Name, Value: outline.Titled(titles[i].Name), Bare: isNumber(&titles[i])}
		width[i] = len(titles[i].Value)
	}
	for i := range t.rows {
		for j, f := range t.row(i) {
			width[j] = max(width[j], min(utf8.RuneCountInString(f.Value), maxColumn))
		}
	}
	b = appendRow(b, width, titles, titles)
	for i := range t.rows {
		b = full(appendRow(b, width, titles, t.row(i)))
	}
	return b
}

// isNumber reports whether people expect the value at the right of its column.
func isNumber(f *outline.Field) bool { return f.Bare && f.Value != "true" && f.Value != "false" }

// appendRow appends a row, numbers where the titles are bare.
func appendRow(b []byte, width []int, titles, row []outline.Field) []byte {
	for i, f := range row {
		if i > 0 {
			b = append(b, "  "...)
		}
		blanks := strings.Repeat(" ", max(0, width[i]-utf8.RuneCountInString(f.Value)))
		switch {
		case titles[i].Bare:
			b = append(append(b, blanks...), f.Value...)
		case i == len(row)-1: // No blanks at the end of a line.
			b = append(b, f.Value...)
		default:
			b = append(append(b, f.Value...), blanks...)
		}
	}
	return append(b, '\n')
}
