package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/internal/check"
)

// most is more than a connection keeps for a reader that is not there.
const most = 16 << 20

// sendAll writes a request to its end before it reads the answer, as plain clients do.
func sendAll(t *testing.T, address, head string, size int64, isChunked bool) (*http.Response, string) {
	t.Helper()
	w := dial(t, address)
	check.Must(t, w.SetDeadline(time.Now().Add(time.Minute)))
	if isChunked {
		w.send(head + "Transfer-Encoding: chunked\r\n\r\n")
		const chunk = 1 << 20
		for sent := int64(0); sent < size; sent += chunk {
			w.send(fmt.Sprintf("%x\r\n%s\r\n", chunk, strings.Repeat("x", chunk)))
		}
		w.send("0\r\n\r\n")
	} else {
		w.send(fmt.Sprintf("%sContent-Length: %d\r\n\r\n", head, size))
		check.Must(t, check.Err(io.CopyN(w, &endless{}, size)), "the body was not taken")
	}
	r, err := http.ReadResponse(w.r, &http.Request{Method: http.MethodPost})
	check.Must(t, err, "there is no answer")
	body, err := io.ReadAll(r.Body)
	check.Must(t, err)
	return r, string(body)
}

// TestRefusedBodyIsTaken: a client that sends all of a large body before it reads finds an answer,
// although the server did not need the body.
func TestRefusedBodyIsTaken(t *testing.T) {
	n := newNode(t)
	address := listen(t, n.handler)
	follower := newNode(t)
	follower.cluster.role, follower.cluster.leader = "follower", "http://leader.example:2113"
	followerAddress := listen(t, follower.handler)
	forwardingAddress := listen(t, newForwarding(t, n).handler)
	event := "ES-EventType: t\r\nES-EventId: " + uuid.NewString() + "\r\n"
	raw := "Content-Type: application/octet-stream\r\n"
	for name, c := range map[string]struct {
		address, path, head string
		size                int64
		isChunked           bool
		status              string
	}{
		"too large":             {address, "/streams/s", raw + event, 31_000_000, false, "413 Too large events received. Limit is 4mb"},
		"too large and chunked": {address, "/streams/s", raw + event, 60 << 20, true, "413 Too large events received. Limit is 4mb"},
		"wrong type":            {address, "/streams/s", "Content-Type: image/png\r\n", most, false, "415 Invalid or missing Content-Type"},
		"wrong type, chunked":   {address, "/streams/s", "Content-Type: image/png\r\n", most, true, "415 Invalid or missing Content-Type"},
		"no right":              {address, "/streams/$s", raw + event, most, false, "401 Unauthorized"},
		"no route":              {address, "/nothing", raw, most, false, "404 Not Found"},
		"no method":             {address, "/streams/s/0", raw, most, false, "405 Method Not Allowed"},
		"no id":                 {address, "/streams/s", raw + "ES-EventType: t\r\n", most, false, "307 Temporary Redirect"},
		"closing":               {address, "/streams/s", raw + "Connection: close\r\n", most, false, "400 Must include an event type with the request either in body or as ES-EventType header."},
		"too large to forward":  {forwardingAddress, "/streams/s", raw + event, 31_000_000, false, "413 Too large events received. Limit is 4mb"},
		"follower":              {followerAddress, "/streams/s", raw + event, most, false, "307 Temporary Redirect"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := sendAll(t, c.address, "POST "+c.path+" HTTP/1.1\r\nHost: "+host+"\r\n"+c.head, c.size, c.isChunked)
			check.Equal(t, r.Status, c.status, "the answer")
			if r.TransferEncoding != nil {
				t.Errorf("the answer comes in pieces: %v", r.TransferEncoding)
			}
		})
	}
}

// TestRefusalIsNotDelayed: a client that reads while it sends learns of the
// refusal before it has sent all, and one that asks first is not asked for a body.
func TestRefusalIsNotDelayed(t *testing.T) {
	n := newNode(t)
	address := listen(t, n.handler)
	for name, head := range map[string]string{
		"half sent": "",
		"asked":     "Expect: 100-continue\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := dial(t, address)
			w.send("POST /streams/s HTTP/1.1\r\nHost: " + host + "\r\nContent-Type: image/png\r\nContent-Length: 20000000\r\n" + head + "\r\n")
			if status, _ := w.answer(http.MethodPost); status != "415 Invalid or missing Content-Type" {
				t.Errorf("the answer is %q", status)
			}
		})
	}
}

// TestTakenBodyKeepsConnection: bodies that were read leave the connection as it was.
func TestTakenBodyKeepsConnection(t *testing.T) {
	n := newNode(t)
	w := dial(t, listen(t, n.handler))
	for i := range 2 {
		id := uuid.NewString()
		w.send(fmt.Sprintf("POST /streams/s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/octet-stream\r\nES-EventType: t\r\nES-EventId: %s\r\nContent-Length: 3000000\r\n\r\n", host, id))
		check.Must(t, check.Err(io.CopyN(w, &endless{}, 3_000_000)))
		if status, _ := w.answer(http.MethodPost); status != "201 Created" {
			t.Errorf("answer %d is %q", i, status)
		}
		w.send(fmt.Sprintf("POST /streams/s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nES-EventType: t\r\nES-EventId: %s\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", host, uuid.NewString()))
		if status, _ := w.answer(http.MethodPost); status != "201 Created" {
			t.Errorf("chunked answer %d is %q", i, status)
		}
	}
}

// flushedRecorder is a recorder that a deadline can be set on, as on a connection.
type flushedRecorder struct{ *httptest.ResponseRecorder }

func (flushedRecorder) SetReadDeadline(time.Time) error { return nil }

// flushedBody tells whether the answer went out before it was read.
type flushedBody struct {
	io.Reader
	w     *httptest.ResponseRecorder
	early bool
}

func (b *flushedBody) Read(p []byte) (int, error) {
	b.early = b.early || !b.w.Flushed
	return b.Reader.Read(p)
}

// TestRefusedBodyIsTakenOverHTTP2: net/http would end the stream with a reset,
// for which some clients forget the answer, however little is left. Its own client
// stops sending by itself and so cannot show it.
func TestRefusedBodyIsTakenOverHTTP2(t *testing.T) {
	n := newNode(t)
	for _, size := range []int64{1000, most} {
		w := flushedRecorder{httptest.NewRecorder()}
		rest := &io.LimitedReader{R: &endless{}, N: size}
		body := &flushedBody{Reader: rest, w: w.ResponseRecorder}
		r := httptest.NewRequest("POST", base+"/streams/s", body)
		r.Proto, r.ProtoMajor, r.ProtoMinor, r.ContentLength = "HTTP/2.0", 2, 0, size
		r.Header.Set("Content-Type", "image/png")
		n.handler.ServeHTTP(w, r)
		if w.Code != 415 || rest.N != 0 || body.early {
			t.Errorf("answer %d to %d bytes, of which %d are left; read before the answer: %v", w.Code, size, rest.N, body.early)
		}
	}
}

// TestRefusalEndsOverHTTP2: a client of HTTP/2 that stops sending when it is refused waits for the
// end of the answer, and no longer than a moment.
func TestRefusalEndsOverHTTP2(t *testing.T) {
	n := newNode(t)
	server := httptest.NewUnstartedServer(n.handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for range 5 {
		body, sends := io.Pipe() // Nothing is ever sent.
		defer sends.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/streams/s", body)
		check.Must(t, err)
		r.Header.Set("Content-Type", "image/png")
		answer := check.Value(server.Client().Do(r)).Must(t)
		_, err = io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.ProtoMajor != 2 || answer.StatusCode != http.StatusUnsupportedMediaType || err != nil {
			t.Fatalf("%s %s: %v", answer.Proto, answer.Status, err)
		}
	}
}
