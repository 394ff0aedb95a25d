package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// errMalformed says that the answer is not an HTTP/1 response.
var errMalformed = errors.New("malformed response")

// Bounds on what one response may make the driver hold.
const (
	readBufferBytes = 32 << 10  // also the longest header line
	maxHeaderBytes  = 128 << 10 // all lines of one response, interim ones included
	maxChunkLine    = 4 << 10   // what surrounds a chunk
	maxReadBytes    = 256 << 10 // one read of a large body
	maxBodyBytes    = 1 << 30   // a body that is kept
	noVersion       = math.MinInt64
	noLength        = -1
)

// response is what the workloads look at in an answer. It is reused: its slices hold until the next
// read.
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
	in      *bufio.Reader
	started bool // a byte of the present response has arrived
}

func newResponseReader(src io.Reader) *responseReader {
	return &responseReader{in: bufio.NewReaderSize(src, readBufferBytes)}
}

// read reads one whole response. The body is kept when keep is set or the
// status is an error; otherwise it is only counted. io.EOF comes when the
// connection ended before the first byte.
func (p *responseReader) read(resp *response, keep bool) error {
	p.started = false
	if _, err := p.in.Peek(1); err != nil {
		return err
	}
	p.started = true
	err := p.readWhole(resp, keep)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (p *responseReader) readWhole(resp *response, keep bool) error {
	budget := maxHeaderBytes
	for {
		if err := p.readHeader(resp, &budget); err != nil {
			return err
		}
		// Interim responses (100, 103) precede the one that counts.
		if resp.status >= 200 {
			return p.readBody(resp, keep || resp.status >= 400, &budget)
		}
		if resp.status == 101 {
			return fmt.Errorf("%w: unasked change of protocol", errMalformed)
		}
	}
}

func (p *responseReader) readHeader(resp *response, budget *int) error {
	*resp = response{
		version: noVersion, contentLength: noLength,
		location: resp.location[:0], etag: resp.etag[:0], body: resp.body[:0],
	}
	line, err := p.line(budget)
	if err != nil {
		return err
	}
	if err := parseStatusLine(line, resp); err != nil {
		return err
	}
	for {
		line, err := p.line(budget)
		if err != nil || len(line) == 0 {
			return err
		}
		if err := parseHeaderLine(line, resp); err != nil {
			return err
		}
	}
}

func parseStatusLine(line []byte, resp *response) error {
	// "HTTP/1.1 200" and then either nothing or a space and the reason.
	if len(line) < 12 || len(line) > 12 && line[12] != ' ' || string(line[:9]) != "HTTP/1.0 " && string(line[:9]) != "HTTP/1.1 " {
		return fmt.Errorf("%w: status line %.40q", errMalformed, line)
	}
	status, err := parseDigits(line[9:12])
	if err != nil || status < 100 {
		return fmt.Errorf("%w: status line %.40q", errMalformed, line)
	}
	resp.status = int(status)
	resp.old = line[7] == '0'
	resp.closing = resp.old
	return nil
}

func parseHeaderLine(line []byte, resp *response) error {
	name, value, found := bytes.Cut(line, []byte(":"))
	if !found || len(name) == 0 || name[0] == ' ' || name[0] == '\t' {
		return fmt.Errorf("%w: header line %.40q", errMalformed, line)
	}
	switch {
	case is(name, "Content-Length"):
		n, err := parseDigits(bytes.TrimSpace(value))
		if err != nil || resp.contentLength != noLength && resp.contentLength != n {
			return fmt.Errorf("%w: header line %.40q", errMalformed, line)
		}
		resp.contentLength = n
	case is(name, "Transfer-Encoding"):
		if resp.chunked || resp.old || !is(bytes.TrimSpace(value), "chunked") {
			return fmt.Errorf("%w: header line %.40q", errMalformed, line)
		}
		resp.chunked = true
	case is(name, "Connection"):
		value = bytes.TrimSpace(value)
		resp.closing = is(value, "close") || resp.closing && !is(value, "keep-alive")
	case is(name, "Location"):
		resp.location = append(resp.location[:0], bytes.TrimSpace(value)...)
	case is(name, "ETag"):
		resp.etag = append(resp.etag[:0], bytes.TrimSpace(value)...)
	case is(name, "ES-CurrentVersion"):
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err == nil {
			resp.version = n
		}
	}
	return nil
}

// is compares without regard to case. The length rules out nearly all headers.
func is(b []byte, s string) bool { return len(b) == len(s) && strings.EqualFold(string(b), s) }

func parseDigits(b []byte) (int64, error) {
	n, err := strconv.ParseUint(string(b), 10, 63)
	return int64(n), err
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
		if _, err := p.in.Peek(1); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := p.take(resp, int64(p.in.Buffered()), keep); err != nil {
			return err
		}
	}
}

func (p *responseReader) readChunks(resp *response, keep bool, budget *int) error {
	for {
		framing := maxChunkLine // of each chunk: their number is not bounded
		line, err := p.line(&framing)
		if err != nil {
			return err
		}
		digits, _, _ := bytes.Cut(line, []byte(";")) // Extensions mean nothing to us.
		size, err := strconv.ParseUint(string(bytes.TrimRight(digits, " \t")), 16, 60)
		if err != nil {
			return fmt.Errorf("%w: chunk size %.40q", errMalformed, line)
		}
		if size == 0 {
			break
		}
		if err := p.take(resp, int64(size), keep); err != nil {
			return err
		}
		if line, err = p.line(&framing); err != nil {
			return err
		}
		if len(line) != 0 {
			return fmt.Errorf("%w: chunk is longer than announced", errMalformed)
		}
	}
	for { // trailers
		line, err := p.line(budget)
		if err != nil || len(line) == 0 {
			return err
		}
	}
}

// take uses up n bytes of the body. The buffer grows only by what may arrive at once, not by the
// announced length.
func (p *responseReader) take(resp *response, n int64, keep bool) (err error) {
	if keep && n > maxBodyBytes-int64(len(resp.body)) {
		return fmt.Errorf("%w: body above %d bytes", errMalformed, maxBodyBytes)
	}
	for n > 0 && err == nil {
		step := int(min(n, maxReadBytes))
		if keep {
			have := len(resp.body)
			resp.body = slices.Grow(resp.body, step)[:have+step]
			_, err = io.ReadFull(p.in, resp.body[have:])
		} else {
			_, err = p.in.Discard(step)
		}
		resp.length += int64(step)
		n -= int64(step)
	}
	return err
}

// line returns the next line without its end. The slice holds until the next call that reads.
func (p *responseReader) line(budget *int) ([]byte, error) {
	line, err := p.in.ReadSlice('\n')
	if *budget -= len(line); *budget < 0 || err == bufio.ErrBufferFull {
		return nil, fmt.Errorf("%w: header is too long", errMalformed)
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}
