package admin

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/annalsdb/annals/admin/redact"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
)

// Paths of the local socket. The latter two are nowhere else.
const (
	socketPositionsPath = "/redaction/positions"
	socketSwitchPath    = "/redaction/switch"

	maxSwitchLine = 4 << 10
)

// RedactionSocket serves the local socket in the data folder: /admin/redact, and for tools that
// copy chunk files themselves
//
//	POST /redaction/positions  {"event":"0@stream"}
//	POST /redaction/switch     {"target":"chunk-000000.000000","new":"x.tmp"} …, a line each
//
// The second is a session: it has the lock of those that switch chunk files from its first answer
// line on until its request ends, also because the tool is gone. Each request line is answered by
// {"result":"Success"}, or the reason, with a detail. user names the peer of a request.
func RedactionSocket(r Redactions, user func(*http.Request) string) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST "+RedactPath, socketServed(func(w http.ResponseWriter, q *http.Request) (any, error) {
		body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxRedactBody))
		if err != nil {
			return nil, problemLargeRedaction
		}
		request, err := parseRedaction(body, user(q))
		if err != nil {
			return nil, err
		}
		outcomes, err := r.Redact(q.Context(), request)
		return redactionDocument{Events: outcomes}, err
	}))
	m.HandleFunc("POST "+socketPositionsPath, socketServed(func(w http.ResponseWriter, q *http.Request) (any, error) {
		var fields struct {
			Event string `json:"event"`
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, q.Body, maxRedactBody)).Decode(&fields); err != nil {
			return nil, problem.Bad(`The body must be an object like {"event":"0@stream"}.`)
		}
		e, err := redact.ParseEvent(fields.Event)
		if err != nil {
			return nil, problem.Bad(err.Error())
		}
		found, err := r.Positions(e.Stream, e.Number)
		return positionsDocument(found), err
	}))
	m.HandleFunc("POST "+socketSwitchPath, func(w http.ResponseWriter, q *http.Request) { switchSession(w, q, r, user(q)) })
	return m
}

type positionDocument struct {
	Position int64  `json:"logPosition"`
	Chunk    string `json:"fileName"`
	Format   int    `json:"chunkVersion"`
	Complete bool   `json:"isComplete"`
	Offset   int64  `json:"rawPosition"`
}

func positionsDocument(found []redact.Position) any {
	all := make([]positionDocument, 0, len(found))
	for _, p := range found {
		all = append(all, positionDocument{p.Position, p.File, p.Format, p.Complete, p.Offset})
	}
	return struct {
		Positions []positionDocument `json:"positions"`
	}{all}
}

// switchSession serves one session.
func switchSession(w http.ResponseWriter, q *http.Request, r Redactions, user string) {
	type result struct {
		Result string `json:"result"`
		Detail string `json:"detail,omitempty"`
	}
	session, err := r.Session(user)
	if err != nil {
		socketFailed(w, err)
		return
	}
	defer session.Close()
	control := http.NewResponseController(w)
	out := json.NewEncoder(w)
	say := func(a result) bool { return out.Encode(a) == nil && control.Flush() == nil }
	w.Header().Set(request.KeyContentType, "application/json")
	if control.EnableFullDuplex() != nil || !say(result{Result: "Locked"}) {
		return
	}
	lines := bufio.NewScanner(q.Body)
	lines.Buffer(nil, maxSwitchLine)
	for lines.Scan() {
		var fields struct{ Target, New string }
		a := result{Result: "Success"}
		if err := json.Unmarshal(lines.Bytes(), &fields); err != nil {
			a = result{"UnexpectedError", "a line must be an object like {\"target\":\"chunk-000000.000000\",\"new\":\"x.tmp\"}"}
		} else if err := session.Switch(q.Context(), fields.Target, fields.New); err != nil {
			a = result{"UnexpectedError", err.Error()}
			if reason, ok := redact.SwitchReason(err); ok {
				a.Result = reason
			}
		}
		if !say(a) {
			return
		}
	}
}

// socketServed answers with the document that a request asks for.
func socketServed(serve func(http.ResponseWriter, *http.Request) (document any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		document, err := serve(w, q)
		var text []byte
		if err == nil {
			text, err = json.MarshalIndent(document, "", "  ")
		}
		if err != nil {
			socketFailed(w, err)
			return
		}
		w.Header().Set(request.KeyContentType, "application/json; charset=utf-8")
		_, _ = w.Write(text) // The peer may be gone.
	}
}

func socketFailed(w http.ResponseWriter, err error) {
	p, known := problem.Of(err, problem.Reading)
	if !known && !errors.Is(err, io.EOF) {
		// A caller that may open the socket may read it.
		p = problem.New(http.StatusInternalServerError, err.Error())
	}
	http.Error(w, p.Text, p.Status)
}
