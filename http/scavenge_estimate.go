package httpapi

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
	"github.com/annalsdb/annals/internal/logkey"
)

// estimateScavenge answers with the estimate of a run. It may read the whole database: only the
// client's going and the end of the server limit it.
func (r *scavengeHandlers) estimateScavenge(x *exchange, o scavenge.EstimateOptions) error {
	// net/http notices that a client goes away only when the body has been read.
	if _, err := io.Copy(io.Discard, x.r.Body); err != nil {
		return problemInvalidBody
	}
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	defer context.AfterFunc(x.node.draining, cancel)()
	e, err := r.scavenges.Estimate(ctx, o)
	if err != nil {
		return err
	}
	h := x.w.Header()
	h[keyContentType], h[keyVary], h[keyCacheControl] = x.media.contentType, varyAccept, cacheNever
	answer := parts{x: x}
	if x.media.form == formText {
		answer.send(appendEstimateText(x.out[:0], e, answer.full))
		return nil
	}
	doc := newOutline(x)
	doc.full = answer.full
	doc.estimate(e)
	answer.send(doc.b)
	return nil
}

// partBytes is how much of a long answer is kept before it is sent on its way.
const partBytes = 64 << 10

// parts sends an answer that may be long. One that is not goes out whole.
type parts struct {
	x     *exchange
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
	if _, err := p.x.w.Write(b); err != nil {
		p.gone = true
		p.x.node.log.Debug("the client did not take the answer", "path", p.x.r.URL.Path, logkey.Error, err)
	}
}

// send sends the rest.
func (p *parts) send(b []byte) {
	p.x.out = b
	if p.begun {
		p.write(b)
		return
	}
	p.x.send(http.StatusOK, b)
}

// estimate writes the document of JSON or XML.
func (o *outline) estimate(e *scavenge.Estimate) {
	stream := func(s scavenge.StreamEstimate) {
		o.leaves(textField("stream", s.Stream), intField("events", s.Events), intField("bytes", s.Bytes), textField("why", s.Why))
	}
	o.root("scavengeEstimateDto", func() {
		o.leaves(intField("end", e.End), intField("threshold", int64(e.Threshold)), intField("bytes", e.Bytes), intField("events", e.Events))
		o.list("chunks", "chunk", len(e.Chunks), func(i int) { o.leaves(chunkFields(&e.Chunks[i])...) })
		o.list("streams", "item", len(e.Streams), func(i int) { stream(e.Streams[i]) })
		o.list("kept", "item", len(e.Kept), func(i int) { stream(e.Kept[i]) })
		o.leaves(intField("tookMs", e.Took.Milliseconds()))
	})
}

func chunkFields(c *scavenge.ChunkEstimate) []field {
	return []field{
		textField("file", c.File), intField("first", int64(c.First)), intField("last", int64(c.Last)), intField("fileBytes", c.FileBytes),
		intField("bytes", c.Bytes), intField("events", c.Events), intField("weight", c.Weight), boolField("executed", c.Executed),
	}
}

// appendEstimateText appends the document for people: a sentence, and three tables.
func appendEstimateText(b []byte, e *scavenge.Estimate, full func([]byte) []byte) []byte {
	b = fmt.Appendf(b, "A scavenge with threshold %d at position %d would remove %d events of about %d bytes. Nothing was changed. It took %v to find out.\n",
		e.Threshold, e.End, e.Events, e.Bytes, e.Took.Round(time.Millisecond))
	stream := func(s scavenge.StreamEstimate) []field {
		return []field{
			intField("bytes", s.Bytes), intField("events", s.Events), textField("stream", api.Printable(s.Stream)), textField("why", api.Printable(s.Why)),
		}
	}
	for _, t := range []textTable{
		{"Chunk files", len(e.Chunks), func(i int) []field { return chunkFields(&e.Chunks[i]) }},
		{"Streams of which most would go", len(e.Streams), func(i int) []field { return stream(e.Streams[i]) }},
		{"Largest streams of which nothing would go", len(e.Kept), func(i int) []field { return stream(e.Kept[i]) }},
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
	row   func(i int) []field
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
		titles[i] = field{titles[i].name, titled(titles[i].name), titles[i].isNumber()}
		width[i] = len(titles[i].value)
	}
	for i := range t.rows {
		for j, f := range t.row(i) {
			width[j] = max(width[j], min(utf8.RuneCountInString(f.value), maxColumn))
		}
	}
	b = appendRow(b, width, titles, titles)
	for i := range t.rows {
		b = full(appendRow(b, width, titles, t.row(i)))
	}
	return b
}

// isNumber reports whether people expect the value at the right of its column.
func (f *field) isNumber() bool { return f.bare && f.value != "true" && f.value != "false" }

// appendRow appends a row, numbers where the titles are bare.
func appendRow(b []byte, width []int, titles, row []field) []byte {
	for i, f := range row {
		if i > 0 {
			b = append(b, "  "...)
		}
		blanks := strings.Repeat(" ", max(0, width[i]-utf8.RuneCountInString(f.value)))
		switch {
		case titles[i].bare:
			b = append(append(b, blanks...), f.value...)
		case i == len(row)-1: // No blanks at the end of a line.
			b = append(b, f.value...)
		default:
			b = append(append(b, f.value...), blanks...)
		}
	}
	return append(b, '\n')
}
