package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// errMalformed says that what came back is no HTTP/1 response.
var errMalformed = errors.New("malformed response")

// Bounds on what one response may make the driver hold.
const (
	readBufferBytes = 32 << 10  // also the longest header line
	maxHeaderBytes  = 128 << 10 // all lines of one response, interim ones included
	directReadBytes = 256 << 10 // one read of a large body
	maxBodyBytes    = 1 << 30   // a body that is kept
	noVersion       = math.MinInt64
	noLength        = -1
)

// response is what the workloads look at in an answer. It is reused: its slices hold until the next read.
type response struct {
	status   int
	length   int64 // bytes of the body, decoded
	version  int64 // ES-CurrentVersion, noVersion when absent
	closing  bool  // the connection cannot be used again
	location []byte
	etag     []byte
	body     []byte // only when it was asked for, or the status is an error

	contentLength int64
	chunked       bool
	old           bool // HTTP/1.0, which knows no chunks
}

// responseReader reads the responses of one connection.
type responseReader struct {
	src     io.Reader
	buf     []byte
	r, w    int  // buf[r:w] was received and not yet used
	started bool // a byte of the present response has arrived
}

func newResponseReader(src io.Reader) *responseReader {
	return &responseReader{src: src, buf: make([]byte, readBufferBytes)}
}

// reset begins anew on another connection.
func (p *responseReader) reset(src io.Reader) {
	p.src, p.r, p.w, p.started = src, 0, 0, false
}

// buffered returns how many bytes came that belong to no response asked for.
func (p *responseReader) buffered() int { return p.w - p.r }

// read reads one whole response. The body is kept when keep is set or the
// status is an error; otherwise it is only counted. io.EOF comes when the
// connection ended before the first byte.
func (p *responseReader) read(resp *response, keep bool) error {
	p.started = p.r < p.w
	budget := maxHeaderBytes
	for {
		if err := p.readHeader(resp, &budget); err != nil {
			return err
		}
		// Interim responses (100, 103) precede the one that counts.
		if resp.status >= 200 {
			break
		}
		if resp.status == 101 {
			return fmt.Errorf("%w: unasked change of protocol", errMalformed)
		}
	}
	keep = keep || resp.status >= 400
	err := p.readBody(resp, keep, &budget)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (p *responseReader) readHeader(resp *response, budget *int) error {
	*resp = response{
		version: noVersion, contentLength: noLength,
		location: resp.location[:0], etag: resp.etag[:0], body: resp.body[:0],
	}
	line, err := p.line(budget)
	if err != nil {
		if err == io.EOF && p.started {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if err := parseStatusLine(line, resp); err != nil {
		return err
	}
	for {
		line, err := p.line(budget)
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		if err := parseHeaderLine(line, resp); err != nil {
			return err
		}
	}
}

func parseStatusLine(line []byte, resp *response) error {
	// "HTTP/1.1 200" and then either nothing or a space and the reason.
	if len(line) < 12 || string(line[:7]) != "HTTP/1." || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return fmt.Errorf("%w: status line %.40q", errMalformed, line)
	}
	switch line[7] {
	case '1':
	case '0':
		resp.closing, resp.old = true, true
	default:
		return fmt.Errorf("%w: status line %.40q", errMalformed, line)
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return fmt.Errorf("%w: status line %.40q", errMalformed, line)
		}
		resp.status = resp.status*10 + int(c-'0')
	}
	if resp.status < 100 {
		return fmt.Errorf("%w: status %d", errMalformed, resp.status)
	}
	return nil
}

func parseHeaderLine(line []byte, resp *response) error {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || line[0] == ' ' || line[0] == '\t' {
		return fmt.Errorf("%w: header line %.40q", errMalformed, line)
	}
	name := line[:colon]
	// Length and first letter rule out nearly all headers before any comparison.
	switch {
	case len(name) == 14 && name[0]|0x20 == 'c' && is(name, "Content-Length"):
		n, err := parseDigits(bytes.TrimSpace(line[colon+1:]))
		if err != nil || resp.contentLength != noLength && resp.contentLength != n {
			return fmt.Errorf("%w: header line %.40q", errMalformed, line)
		}
		resp.contentLength = n
	case len(name) == 17 && name[0]|0x20 == 't' && is(name, "Transfer-Encoding"):
		if resp.chunked || resp.old || !is(bytes.TrimSpace(line[colon+1:]), "chunked") {
			return fmt.Errorf("%w: header line %.40q", errMalformed, line)
		}
		resp.chunked = true
	case len(name) == 10 && name[0]|0x20 == 'c' && is(name, "Connection"):
		value := bytes.TrimSpace(line[colon+1:])
		if is(value, "close") {
			resp.closing = true
		} else if is(value, "keep-alive") {
			resp.closing = false
		}
	case len(name) == 8 && name[0]|0x20 == 'l' && is(name, "Location"):
		resp.location = append(resp.location[:0], bytes.TrimSpace(line[colon+1:])...)
	case len(name) == 4 && name[0]|0x20 == 'e' && is(name, "ETag"):
		resp.etag = append(resp.etag[:0], bytes.TrimSpace(line[colon+1:])...)
	case len(name) == 17 && name[0]|0x20 == 'e' && is(name, "ES-CurrentVersion"):
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(line[colon+1:])), 10, 64); err == nil {
			resp.version = n
		}
	}
	return nil
}

func is(b []byte, s string) bool { return bytes.EqualFold(b, []byte(s)) }

func parseDigits(b []byte) (int64, error) {
	if len(b) == 0 || b[0] == '+' || b[0] == '-' {
		return 0, errMalformed
	}
	return strconv.ParseInt(string(b), 10, 64)
}

func (p *responseReader) readBody(resp *response, keep bool, budget *int) error {
	switch {
	case resp.status == 204 || resp.status == 304:
		return nil
	case resp.chunked:
		return p.readChunks(resp, keep, budget)
	case resp.contentLength != noLength:
		return p.take(resp, resp.contentLength, keep)
	}
	// Neither length nor chunks: the body ends with the connection.
	resp.closing = true
	for {
		if p.r == p.w {
			if err := p.fill(); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
		}
		if err := p.take(resp, int64(p.w-p.r), keep); err != nil {
			return err
		}
	}
}

func (p *responseReader) readChunks(resp *response, keep bool, budget *int) error {
	for {
		line, err := p.chunkLine()
		if err != nil {
			return err
		}
		size, err := parseChunkSize(line)
		if err != nil {
			return err
		}
		if size == 0 {
			break
		}
		if err := p.take(resp, size, keep); err != nil {
			return err
		}
		if line, err = p.chunkLine(); err != nil {
			return err
		}
		if len(line) != 0 {
			return fmt.Errorf("%w: chunk is longer than announced", errMalformed)
		}
	}
	for { // trailers
		line, err := p.line(budget)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return nil
		}
	}
}

// chunkLine reads a line of the chunk framing, whose length is bounded but whose number is not.
func (p *responseReader) chunkLine() ([]byte, error) {
	budget := 4 << 10
	return p.line(&budget)
}

func parseChunkSize(line []byte) (int64, error) {
	if semicolon := bytes.IndexByte(line, ';'); semicolon >= 0 {
		line = line[:semicolon] // extensions mean nothing to us
	}
	line = bytes.TrimRight(line, " \t")
	if len(line) == 0 || len(line) > 15 {
		return 0, fmt.Errorf("%w: chunk size %.40q", errMalformed, line)
	}
	var n int64
	for _, c := range line {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 | int64(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			n = n<<4 | int64(c|0x20-'a'+10)
		default:
			return 0, fmt.Errorf("%w: chunk size %.40q", errMalformed, line)
		}
	}
	return n, nil
}

// take uses up n bytes of the body.
func (p *responseReader) take(resp *response, n int64, keep bool) error {
	if keep && n > maxBodyBytes-int64(len(resp.body)) {
		return fmt.Errorf("%w: body above %d bytes", errMalformed, maxBodyBytes)
	}
	for n > 0 {
		if p.r == p.w {
			if keep && n > readBufferBytes {
				got, err := p.takeDirect(resp, n)
				if err != nil {
					return err
				}
				n -= got
				continue
			}
			if err := p.fill(); err != nil {
				return err
			}
		}
		part := int(min(int64(p.w-p.r), n))
		if keep {
			resp.body = append(resp.body, p.buf[p.r:p.r+part]...)
		}
		p.r += part
		resp.length += int64(part)
		n -= int64(part)
	}
	return nil
}

// takeDirect receives part of a large body that is kept without the detour over the
// buffer. The body grows only by what may arrive at once, whatever length was announced.
func (p *responseReader) takeDirect(resp *response, n int64) (int64, error) {
	step := int(min(n, directReadBytes))
	resp.body = slices.Grow(resp.body, step)
	have := len(resp.body)
	for range 100 {
		got, err := p.src.Read(resp.body[have : have+step])
		if got > 0 {
			resp.body = resp.body[:have+got]
			resp.length += int64(got)
			return int64(got), nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, io.ErrNoProgress
}

// line returns the next line without its end. The slice holds until the next call that reads.
func (p *responseReader) line(budget *int) ([]byte, error) {
	scanned := 0
	for {
		if i := bytes.IndexByte(p.buf[p.r+scanned:p.w], '\n'); i >= 0 {
			line := p.buf[p.r : p.r+scanned+i]
			p.r += scanned + i + 1
			if *budget -= len(line) + 1; *budget < 0 {
				return nil, fmt.Errorf("%w: header is too long", errMalformed)
			}
			if n := len(line); n > 0 && line[n-1] == '\r' {
				line = line[:n-1]
			}
			return line, nil
		}
		if scanned = p.w - p.r; scanned >= *budget {
			return nil, fmt.Errorf("%w: header is too long", errMalformed)
		}
		if err := p.fill(); err != nil {
			return nil, err
		}
	}
}

// fill receives more into the buffer, at least one byte.
func (p *responseReader) fill() error {
	switch {
	case p.r == p.w:
		p.r, p.w = 0, 0
	case p.w == len(p.buf):
		if p.r == 0 {
			return fmt.Errorf("%w: line is too long", errMalformed)
		}
		p.w = copy(p.buf, p.buf[p.r:p.w])
		p.r = 0
	}
	for range 100 {
		n, err := p.src.Read(p.buf[p.w:])
		if n > 0 {
			p.w += n
			p.started = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}
