package httpapi

import (
	"io"
	"net/http"
	"time"

	"github.com/annalsdb/annals/http/http1"
	"github.com/annalsdb/annals/internal/logkey"
)

// A client that sends all of its request before it looks for an answer gets none when the
// connection is closed on it, and takes a refusal for a broken node. So the rest of a body is read
// and thrown away after the answer, within bounds. Of HTTP/2 the same holds for the reset of a
// stream.
const (
	// smallRest is what connections of HTTP/1 read by themselves: net/http does as much.
	smallRest   = http1.MaxBody
	lingerBytes = 4 * maxBody
	lingerTime  = 30 * time.Second

	// A client of HTTP/2 may stop sending when it sees a refusal. It then waits for the end of the
	// answer, which comes when the server stops reading. So lingerPart must come within
	// lingerPause.
	lingerPart  = 16 << 10
	lingerPause = 250 * time.Millisecond
)

// bodyState is how far the body of a request was read.
type bodyState uint8

const (
	bodyUntouched bodyState = iota
	bodyBegun
	bodyDone // read to its end, or taken over by another reader
)

// isLeft reports whether the client may still be sending a body that the server does not read. A
// client that waits for 100 Continue is not.
func isLeft(x *exchange) bool {
	n := x.r.ContentLength
	if x.bodyState == bodyDone || n == 0 || 0 < n && n <= smallRest && x.r.ProtoMajor == 1 {
		return false
	}
	return x.bodyState == bodyBegun || x.r.Header[keyExpect] == nil
}

// linger reads the rest of the body after the answer. The answer goes out first, so a client that
// reads while it sends need not send all of it.
func linger(x *exchange) {
	if !isLeft(x) {
		return
	}
	c := http.NewResponseController(x.w)
	err := c.SetReadDeadline(time.Now().Add(lingerTime))
	if err == nil {
		err = c.Flush()
	}
	if err == nil && x.r.ProtoMajor == 1 {
		_, err = io.CopyN(io.Discard, x.r.Body, lingerBytes)
	}
	for end, left := time.Now().Add(lingerTime), lingerBytes; err == nil && x.r.ProtoMajor != 1 && left > 0 && time.Now().Before(end); left -= lingerPart {
		if err = c.SetReadDeadline(time.Now().Add(lingerPause)); err == nil {
			_, err = io.CopyN(io.Discard, x.r.Body, lingerPart)
		}
	}
	if err != nil && err != io.EOF {
		x.node.log.Debug("the rest of a request body could not be read", "path", x.r.URL.Path, logkey.Error, err)
	}
}
