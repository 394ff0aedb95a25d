package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http/httputil"
	"strconv"
	"strings"
)

// errMalformed says that the answer is not an HTTP/1 response.
var errMalformed = errors.New("malformed response")

const (
	readBufferBytes = 32 << 10 // also the longest header line
	noVersion       = math.MinInt64
	untilEnd        = math.MaxInt64 // the length of a body that ends with the connection
)

// response is what the workloads look at in an answer. It is reused: its slices hold until the next
// read.
type response struct {
	status   int
	length   int64 // bytes of the body, decoded
	version  int64 // ES-CurrentVersion, noVersion when absent
	closing  bool  // the connection cannot be used again
	old      bool  // HTTP/1.0, which knows no chunks
	chunked  bool
	location []byte
	body     bytes.Buffer // only when it was asked for, or the status is an error
}

// responseReader reads the responses of one connection.
type responseReader struct {
	in      *bufio.Reader
	started bool // a byte of the present response has arrived
	rest    io.LimitedReader
}

func newResponseReader(src io.Reader) *responseReader {
	return &responseReader{in: bufio.NewReaderSize(src, readBufferBytes)}
}

// read reads one whole response. The body is kept when keep is set or the
// status is an error; otherwise it is only counted. io.EOF comes when the
// connection ended before the first byte.
func (p *responseReader) read(resp *response, keep bool) error {
	_, err := p.in.Peek(1)
	if p.started = err == nil; err != nil {
		return err
	}
	resp.status = 0
	// Interim responses (100, 103) precede the one that counts.
	for resp.status < 200 && err == nil {
		err = p.readHeader(resp)
	}
	if err == nil {
		err = p.readBody(resp, keep || resp.status >= 400)
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (p *responseReader) readHeader(resp *response) error {
	resp.length, resp.version, resp.chunked, resp.location = untilEnd, noVersion, false, resp.location[:0]
	line, err := p.line()
	if err != nil {
		return err
	}
	// "HTTP/1.1 200" and then either nothing or a space and the reason.
	if len(line) < 12 || len(line) > 12 && line[12] != ' ' || string(line[:9]) != "HTTP/1.0 " && string(line[:9]) != "HTTP/1.1 " {
		return fmt.Errorf("%w: status line %.40q", errMalformed, line)
	}
	status, err := parseDigits(line[9:12])
	if err != nil || status < 100 || status == 101 { // No one asked for another protocol.
		return fmt.Errorf("%w: status line %.40q", errMalformed, line)
	}
	resp.status, resp.old = int(status), line[7] == '0'
	resp.closing = resp.old
	for {
		line, err := p.line()
		if err != nil || len(line) == 0 {
			return err
		}
		name, value, found := bytes.Cut(line, []byte(":"))
		if !found || !resp.header(name, bytes.TrimSpace(value)) {
			return fmt.Errorf("%w: header line %.40q", errMalformed, line)
		}
	}
}

// header takes a line of the header and reports whether it is well-formed.
func (resp *response) header(name, value []byte) bool {
	switch {
	case len(name) == 0 || name[0] == ' ' || name[0] == '\t':
		return false
	case is(name, "Content-Length"):
		n, err := parseDigits(value)
		if err != nil || resp.length != untilEnd && resp.length != n {
			return false
		}
		resp.length = n
	case is(name, "Transfer-Encoding"):
		if resp.chunked || resp.old || !is(value, "chunked") {
			return false
		}
		resp.chunked = true
	case is(name, "Connection"):
		resp.closing = is(value, "close") || resp.closing && !is(value, "keep-alive")
	case is(name, "Location"):
		resp.location = append(resp.location, value...)
	case is(name, "ES-CurrentVersion"):
		if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
			resp.version = n
		}
	}
	return true
}

// is compares without regard to case. The length rules out nearly all headers.
func is(b []byte, s string) bool { return len(b) == len(s) && strings.EqualFold(string(b), s) }

func parseDigits(b []byte) (int64, error) {
	n, err := strconv.ParseUint(string(b), 10, 63)
	return int64(n), err
}

// readBody reads the body and says how long it was.
func (p *responseReader) readBody(resp *response, keep bool) (err error) {
	length := resp.length
	p.rest.R = p.in
	switch {
	case resp.status == 204 || resp.status == 304:
		length = 0
	case resp.chunked:
		p.rest.R, length = httputil.NewChunkedReader(p.in), untilEnd
	case length == untilEnd:
		resp.closing = true
	}
	p.rest.N = length
	if resp.body.Reset(); keep {
		_, err = resp.body.ReadFrom(&p.rest)
	} else {
		_, err = io.Copy(io.Discard, &p.rest)
	}
	resp.length = length - p.rest.N
	if err == nil && length != untilEnd && p.rest.N > 0 {
		return io.EOF
	}
	if _, network := errors.AsType[net.Error](err); resp.chunked && err != nil && !network && !isLost(err) {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	for resp.chunked && err == nil { // trailers
		var line []byte
		if line, err = p.line(); len(line) == 0 {
			return err
		}
	}
	return err
}

// line returns the next line without its end. The slice holds until the next call that reads.
func (p *responseReader) line() ([]byte, error) {
	line, err := p.in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		return nil, fmt.Errorf("%w: header is too long", errMalformed)
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}
