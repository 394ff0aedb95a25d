package request

import (
	"io"
	"net/http"
	"time"

	"github.com/annalsdb/annals/internal/http1"
	"github.com/annalsdb/annals/internal/logkey"
)

// A client that sends all of its request before it looks for an answer gets none when the
// connection is closed on it, and takes a refusal for a broken node. So the rest of a body is read
// and thrown away after the answer, within bounds. Of HTTP/2 the same holds for the reset of a
// stream.
const (
	// smallRest is what connections of HTTP/1 read by themselves: net/http does as much.
	smallRest   = http1.MaxBody
	lingerBytes = 4 * MaxBody
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
	BodyBegun
	BodyDone // read to its end, or taken over by another reader
)

// isLeft reports whether the client may still be sending a body that the server does not read. A
// client that waits for 100 Continue is not.
func (x *Request) isLeft() bool {
	n := x.R.ContentLength
	if x.BodyState == BodyDone || n == 0 || 0 < n && n <= smallRest && x.R.ProtoMajor == 1 {
		return false
	}
	return x.BodyState == BodyBegun || x.R.Header[keyExpect] == nil
}

// Linger reads the rest of the body after the answer. The answer goes out first, so a client that
// reads while it sends need not send all of it.
func (x *Request) Linger() {
	if !x.isLeft() {
		return
	}
	c := http.NewResponseController(x.W)
	err := c.SetReadDeadline(time.Now().Add(lingerTime))
	if err == nil {
		err = c.Flush()
	}
	if err == nil && x.R.ProtoMajor == 1 {
		_, err = io.CopyN(io.Discard, x.R.Body, lingerBytes)
	}
	for end, left := time.Now().Add(lingerTime), lingerBytes; err == nil && x.R.ProtoMajor != 1 && left > 0 && time.Now().Before(end); left -= lingerPart {
		if err = c.SetReadDeadline(time.Now().Add(lingerPause)); err == nil {
			_, err = io.CopyN(io.Discard, x.R.Body, lingerPart)
		}
	}
	if err != nil && err != io.EOF {
		x.Node.Logger.Debug("the rest of a request body could not be read", "path", x.R.URL.Path, logkey.Error, err)
	}
}
