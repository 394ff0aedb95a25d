package relay

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/check"
)

// TestPass passes answers on as they come, and breaks off where they do.
func TestPass(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer string // as the node writes it
		broken bool   // not whole
		want   string
	}{
		{"with a length", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\none\n", false, "one\n"},
		{"with a length, broken off", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\none\n", true, "one\n"},
		{"without a length", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n", false, "one\ntwo\n"},
		{"without a length, broken off", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n", true, "one\n"},
		{"no body", "HTTP/1.1 204 No Content\r\n\r\n", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := New(nil, 0, hclog.NewNullLogger())
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(c.answer)), r)
				if err != nil {
					t.Error(err)
					return
				}
				p.pass(w, r, answer)
			}))
			defer server.Close()
			answer, err := server.Client().Get(server.URL)
			if c.broken && errors.Is(err, io.EOF) {
				return // Nothing of it had been sent.
			}
			check.Must(t, err)
			got, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			check.MustEqual(t, string(got), c.want, err, "broken off")
			check.Equal(t, errors.Is(err, io.ErrUnexpectedEOF), c.broken, err, "broken off")
		})
	}
}

// TestPassAsItComes has the client see the beginning of an answer whose end waits for
// the client.
func TestPassAsItComes(t *testing.T) {
	p := New(nil, 0, hclog.NewNullLogger())
	in, out := io.Pipe()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.pass(w, r, &http.Response{Status: "200 OK", StatusCode: http.StatusOK, ContentLength: -1, Body: in})
	}))
	defer server.Close()
	write := func(text string) { check.NoError(t, check.Err(io.WriteString(out, text))) }
	written := make(chan struct{})
	go func() {
		write("one\n")
		close(written)
	}()
	answer := check.Value(server.Client().Get(server.URL)).Must(t)
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewReader(answer.Body)
	<-written
	for _, want := range []string{"one\n", "two\n"} {
		if line, err := lines.ReadString('\n'); err != nil || line != want {
			t.Fatalf("%q, %v, want %q", line, err, want)
		}
		if want == "one\n" {
			write("two\n")
			_ = out.Close()
		}
	}
}
