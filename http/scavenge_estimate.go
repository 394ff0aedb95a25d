package httpapi

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/internal/logkey"
)

// estimateScavenge answers with what a run would do. It may read the whole
// database: only the client's going and the end of the server limit it.
func estimateScavenge(x *exchange, o scavenge.EstimateOptions) error {
	// net/http notices that a client goes away only when the body has been read.
	if _, err := io.Copy(io.Discard, x.r.Body); err != nil {
		return problemInvalidBody
	}
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	defer context.AfterFunc(x.s.draining, cancel)()
	e, err := x.s.opts.Scavenges.Estimate(ctx, o)
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

// full takes what there is of the answer and returns where to go on with it.
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
		p.x.s.log.Debug("answer was not taken", "path", p.x.r.URL.Path, logkey.Error, err)
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
	o.root("scavengeEstimateDto", func() {
		o.leaves(intField("end", e.End), intField("threshold", int64(e.Threshold)), intField("bytes", e.Bytes), intField("events", e.Events))
		o.list("chunks", "chunk", len(e.Chunks), func(i int) {
			c := &e.Chunks[i]
			o.leaves(
				textField("file", c.File), intField("first", int64(c.First)), intField("last", int64(c.Last)),
				intField("fileBytes", c.FileBytes), intField("bytes", c.Bytes), intField("events", c.Events), intField("weight", c.Weight),
				boolField("executed", c.Executed),
			)
		})
		o.list("streams", "item", len(e.Streams), func(i int) {
			s := &e.Streams[i]
			o.streamEstimate(s.Stream, s.Events, s.Bytes, s.Why)
		})
		o.list("kept", "item", len(e.Kept), func(i int) {
			s := &e.Kept[i]
			o.streamEstimate(s.Stream, s.Events, s.Bytes, s.Why)
		})
		o.leaves(intField("tookMs", e.Took.Milliseconds()))
	})
}

func (o *outline) streamEstimate(stream string, events, bytes int64, why string) {
	o.leaves(textField("stream", stream), intField("events", events), intField("bytes", bytes), textField("why", why))
}

// appendEstimateText appends the document for people: a sentence, and three tables.
func appendEstimateText(b []byte, e *scavenge.Estimate, full func([]byte) []byte) []byte {
	b = append(b, "A scavenge with threshold "...)
	b = strconv.AppendInt(b, int64(e.Threshold), 10)
	b = append(b, " at position "...)
	b = strconv.AppendInt(b, e.End, 10)
	b = append(b, " would remove "...)
	b = strconv.AppendInt(b, e.Events, 10)
	b = append(b, " events of about "...)
	b = strconv.AppendInt(b, e.Bytes, 10)
	b = append(b, " bytes. Nothing was changed. It took "...)
	b = append(b, e.Took.Round(time.Millisecond).String()...)
	b = append(b, " to find out.\n"...)

	chunks := textTable{
		title: "Chunk files", rows: len(e.Chunks),
		columns: []column{{"File", false}, {"First", true}, {"Last", true}, {"FileBytes", true}, {"Bytes", true}, {"Events", true}, {"Weight", true}, {"Executed", false}},
		cells: func(row []string, i int) []string {
			c := &e.Chunks[i]
			return append(row, c.File, strconv.Itoa(c.First), strconv.Itoa(c.Last), digits(c.FileBytes), digits(c.Bytes), digits(c.Events), digits(c.Weight),
				strconv.FormatBool(c.Executed))
		},
	}
	ofStreams := []column{{"Bytes", true}, {"Events", true}, {"Stream", false}, {"Why", false}}
	streams := textTable{
		title: "Streams of which most would go", rows: len(e.Streams), columns: ofStreams,
		cells: func(row []string, i int) []string {
			s := &e.Streams[i]
			return append(row, digits(s.Bytes), digits(s.Events), printable(s.Stream), printable(s.Why))
		},
	}
	kept := textTable{
		title: "Largest streams of which nothing would go", rows: len(e.Kept), columns: ofStreams,
		cells: func(row []string, i int) []string {
			s := &e.Kept[i]
			return append(row, digits(s.Bytes), digits(s.Events), printable(s.Stream), printable(s.Why))
		},
	}
	for _, t := range []*textTable{&chunks, &streams, &kept} {
		b = t.append(append(b, '\n'), full)
	}
	return b
}

func digits(n int64) string { return strconv.FormatInt(n, 10) }

// textTable is a table in columns. Its rows are made twice, once to see how wide
// they are, and never kept: there may be very many.
type textTable struct {
	title   string
	rows    int
	columns []column
	cells   func(row []string, i int) []string
}

type column struct {
	title   string
	isRight bool // aligned
}

// maxColumn is the width that other rows are not widened beyond.
const maxColumn = 64

func (t *textTable) append(b []byte, full func([]byte) []byte) []byte {
	b = append(append(b, t.title...), '\n')
	if t.rows == 0 {
		return append(b, "none\n"...)
	}
	width, row := make([]int, len(t.columns)), make([]string, 0, len(t.columns))
	for i, c := range t.columns {
		row = append(row, c.title)
		width[i] = len(c.title)
	}
	for i := range t.rows {
		for j, cell := range t.cells(row[:0], i) {
			width[j] = max(width[j], min(utf8.RuneCountInString(cell), maxColumn))
		}
	}
	for i, c := range t.columns {
		row = append(row[:i], c.title)
	}
	b = t.appendRow(b, width, row)
	for i := range t.rows {
		b = full(t.appendRow(b, width, t.cells(row[:0], i)))
	}
	return b
}

func (t *textTable) appendRow(b []byte, width []int, row []string) []byte {
	for i, cell := range row {
		if i > 0 {
			b = append(b, "  "...)
		}
		blanks := strings.Repeat(" ", max(0, width[i]-utf8.RuneCountInString(cell)))
		switch {
		case t.columns[i].isRight:
			b = append(append(b, blanks...), cell...)
		case i == len(row)-1: // No blanks at the end of a line.
			b = append(b, cell...)
		default:
			b = append(append(b, cell...), blanks...)
		}
	}
	return append(b, '\n')
}
