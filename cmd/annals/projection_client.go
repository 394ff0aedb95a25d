package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/annalsdb/annals/client"
)

// scriptType is the media type that scripts are sent as.
const scriptType = "application/javascript"

// projectionClient asks a node about projections, and the leader after it.
type projectionClient struct{ *nodeClient }

// content is the body of a request.
type content struct {
	mediaType string
	data      []byte
}

// ask sends a request. The answer has one of the 2xx status codes.
func (c *projectionClient) ask(ctx context.Context, method, path string, query url.Values, body *content) (answer client.Response, err error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	q := client.Request{Method: method, Path: path, Header: map[string]string{"Accept": client.MediaJSON}}
	if body != nil {
		q.Body, q.Header["Content-Type"] = body.data, body.mediaType
	}
	if answer, err = c.Do(ctx, q); err == nil {
		err = answer.Err()
	}
	if errors.Is(err, client.ErrNoProjections) {
		return answer, fmt.Errorf("%s runs no projections: see RunProjections", c.host)
	}
	if _, broken := errors.AsType[*client.UnreachableError](err); broken && method != http.MethodGet {
		err = fmt.Errorf("%w; see whether it was done with annals projection list%s", err, c.nodeFlag())
	}
	return answer, c.explain(err)
}

// of sends a request about one projection.
func (c *projectionClient) of(ctx context.Context, method, name, path string, query url.Values, body *content) (client.Response, error) {
	answer, err := c.ask(ctx, method, "/projection/"+url.PathEscape(name)+path, query, body)
	if client.HasStatus(err, http.StatusNotFound) && !strings.Contains(err.Error(), "not being rebuilt") {
		return answer, fmt.Errorf("%s has no projection %q, or runs none: see RunProjections", c.host, name)
	}
	return answer, err
}

// printOf prints the JSON document of a node about a projection.
func (c *projectionClient) printOf(ctx context.Context, stdout io.Writer, name, path string, query url.Values) error {
	answer, err := c.of(ctx, http.MethodGet, name, path, query, nil)
	if err != nil {
		return err
	}
	return printIndented(stdout, answer.Body)
}

// list returns the projections of a kind.
func (c *projectionClient) list(ctx context.Context, kind string) (projectionList, error) {
	answer, err := c.ask(ctx, http.MethodGet, "/projections/"+kind, nil, nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		Projections projectionList `json:"projections"`
	}
	if err := json.Unmarshal(answer.Body, &list); err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", answer.Host(), err)
	}
	return list.Projections, nil
}

// statistics returns the statistics of a projection.
func (c *projectionClient) statistics(ctx context.Context, name string) (*projectionStatistics, error) {
	answer, err := c.of(ctx, http.MethodGet, name, "", nil, nil)
	if err != nil {
		return nil, err
	}
	p := &projectionStatistics{}
	if err := json.Unmarshal(answer.Body, p); err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", answer.Host(), err)
	}
	return p, nil
}

// create makes a projection and returns its name.
func (c *projectionClient) create(ctx context.Context, kind string, query url.Values, script []byte) (name string, err error) {
	answer, err := c.ask(ctx, http.MethodPost, "/projections/"+kind, query, &content{scriptType, script})
	if err != nil {
		return "", err
	}
	var made struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(answer.Body, &made); err != nil || made.Name == "" {
		return "", fmt.Errorf("%s does not say which projection it made: is it a node?", answer.Host())
	}
	return made.Name, nil
}

// outcome prints the status of a projection that was changed. It is an error that it has faulted.
func (c *projectionClient) outcome(ctx context.Context, stdout io.Writer, name string) error {
	p, err := c.statistics(ctx, name)
	if err != nil {
		return err
	}
	if err := p.printStatus(stdout, c.flags.json); err != nil {
		return err
	}
	if !strings.HasPrefix(p.Status, "Faulted") {
		return nil
	}
	return &codedError{code: exitFaulted, err: fmt.Errorf("projection %q has faulted: %s", name, cmp.Or(p.reason("\n"), "no reason is given"))}
}

// readScript reads a file, or standard input for "-".
func readScript(stdin io.Reader, file string) ([]byte, error) {
	if file == "-" {
		data, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return data, nil
	}
	return os.ReadFile(file)
}

// projectionStatistics are those of a projection. Known ones are for people,
// whole is what the node said.
type projectionStatistics struct {
	client.ProjectionStatistics
	WritesPending   int64  `json:"writePendingEventsBeforeCheckpoint"`
	WritesBehind    int64  `json:"writePendingEventsAfterCheckpoint"`
	ResultStreamURL string `json:"resultStreamUrl"`

	whole json.RawMessage
}

// UnmarshalJSON keeps the whole answer of the node besides the members.
func (p *projectionStatistics) UnmarshalJSON(data []byte) error {
	type plain projectionStatistics
	if err := json.Unmarshal(data, (*plain)(p)); err != nil {
		return err
	}
	p.whole = bytes.Clone(data)
	return nil
}

// progress is how much was read, in percent.
func (p *projectionStatistics) progress() string {
	if p.Progress < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", p.Progress)
}

// reason returns why it is faulted, the lines with text in them.
func (p *projectionStatistics) reason(between string) string {
	var lines []string
	for line := range strings.Lines(p.Fault) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, visible(line))
		}
	}
	return strings.Join(lines, between)
}

func (p *projectionStatistics) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printIndented(w, p.whole)
	}
	var t table
	for _, row := range []struct {
		name  string
		value any
	}{
		{"name", visible(p.Name)},
		{"mode", string(p.Mode)},
		{"status", p.Status},
		{"reason", p.reason(" ")},
		{"progress", p.progress()},
		{"position", visible(p.Position)},
		{"last checkpoint", visible(p.Checkpoint)},
		{"events handled", p.Processed},
		{"time in handlers", fmt.Sprintf("%.0f ms", p.Milliseconds)},
		{"states in memory", p.Partitions},
		{"events buffered", p.Buffered},
		{"writes pending", p.WritesPending + p.WritesBehind},
		{"reads in flight", p.Reads},
		{"writes in flight", p.Writes},
		{"result stream", p.ResultStreamURL},
		{"rebuild", p.Rebuild},
		{"version", p.Version},
		{"epoch", p.Epoch},
	} {
		if row.value != "" {
			t.row("%s\t%v", row.name, row.value)
		}
	}
	return t.print(w)
}

// printStatus prints the name and the status.
func (p *projectionStatistics) printStatus(w io.Writer, asJSON bool) error {
	if asJSON {
		return printIndented(w, p.whole)
	}
	_, err := fmt.Fprintf(w, "%s  %s\n", visible(p.Name), p.Status)
	return err
}

type projectionList []projectionStatistics

func (l projectionList) print(w io.Writer, asJSON bool) error {
	if asJSON {
		whole := make([]json.RawMessage, 0, len(l))
		for i := range l {
			whole = append(whole, l[i].whole)
		}
		return printJSON(w, whole)
	}
	var t table
	t.row("NAME\tMODE\tSTATUS\tPROGRESS\tHANDLED\tPOSITION")
	for i := range l {
		p := &l[i]
		t.row("%s\t%s\t%s\t%s\t%d\t%s", visible(p.Name), p.Mode, p.Status, p.progress(), p.Processed, visible(p.Position))
	}
	return t.print(w)
}

// printRead prints a state or result as an object.
func printRead(w io.Writer, name, partition, what string, answer client.Response) error {
	member := func(text []byte) any {
		if json.Valid(text) {
			return json.RawMessage(text)
		}
		return nil // There is none.
	}
	return printJSON(w, map[string]any{
		"name": name, "partition": partition, "position": member([]byte(answer.Header.Get("ES-Position"))), what: member(answer.Body),
	})
}

// printIndented prints a JSON document.
func printIndented(w io.Writer, document []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, document, "", "  "); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return printLine(w, b.Bytes())
}

// printLine prints a text with a line end, unless it is empty or has one.
func printLine(w io.Writer, text []byte) error {
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(bytes.Clone(text), '\n')
	}
	_, err := w.Write(text)
	return err
}
