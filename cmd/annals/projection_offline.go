package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/script"
)

const projectionTestHelp = `Run the script in a FILE over events, without a node, and print the result as JSON: the
states and results of all partitions, the events that it would emit, and the fault if
there is one. Use it to test a projection.

The events are lines of JSON, each an object in the form of an entry of a feed:

  {"streamId": "cart-1", "eventType": "ItemAdded", "data": {"sku": "A-1"}}

streamId and eventType are required. Without eventNumber, the event gets the next number
of its stream; without eventId, an id that follows from the line. With isJson, as in feeds,
data and metaData are texts; without it, they are values. metadata is metaData. An event
that was reached through a link has positionStreamId, positionEventNumber and
linkMetaData. The script gets the events that it selects, in the order of the lines.

With --golden the command compares the output with a file. --update writes that file.

Exit codes: 0 success, 1 the script faulted or its output differs from the golden file, 2
the test cannot be run.`

type projectionTestFlags struct {
	events, golden        string
	update, emit          bool
	execution, definition time.Duration
}

func projectionTestCommand(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	var f projectionTestFlags
	cmd := &cobra.Command{
		Use:   "test FILE --events FILE",
		Short: "Run a script over events from a file, without a node",
		Long:  projectionTestHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if f.update && f.golden == "" {
				return cannot(errors.New("--update needs --golden"))
			}
			source, err := os.ReadFile(args[0])
			if err != nil {
				return cannot(err)
			}
			events, err := readEventLines(stdin, f.events)
			if err != nil {
				return cannot(err)
			}
			return f.run(args[0], string(source), events, stdout, stderr)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.events, "events", "", "file with events, one JSON object a line; - reads standard input")
	flags.StringVar(&f.golden, "golden", "", "file with the output that is expected")
	flags.BoolVar(&f.update, "update", false, "write the golden file")
	flags.BoolVar(&f.emit, "emit", true, "let the script emit events")
	flags.DurationVar(&f.execution, "execution-timeout", 10*time.Second, "limit of each call of the script")
	flags.DurationVar(&f.definition, "compilation-timeout", 10*time.Second, "limit of its definition")
	if err := cmd.MarkFlagRequired("events"); err != nil {
		panic(err)
	}
	return cmd
}

// readEventLines reads the events of a file, and skips empty lines.
func readEventLines(stdin io.Reader, name string) ([]*handler.Event, error) {
	in := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxEventLine)
	var (
		events []*handler.Event
		n      int
		next   = map[string]int64{}
	)
	for lines.Scan() {
		if n++; len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		e, err := parseEventLine(lines.Bytes(), n, next)
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", name, n, err)
		}
		events = append(events, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s line %d: %w", name, n+1, err)
	}
	return events, nil
}

// maxEventLine bounds one line: an event of 16 MiB, as a text within a text.
const maxEventLine = 64 << 20

// run prints or compares what a script makes of events.
func (f *projectionTestFlags) run(name, source string, events []*handler.Event, stdout, stderr io.Writer) error {
	r := &offlineRun{}
	r.run(source, events, script.Options{
		CompileTimeout: f.definition, ExecutionTimeout: f.execution, MayEmit: f.emit, Name: name,
		Log: func(text string) { r.Log = append(r.Log, text) },
	})
	var text bytes.Buffer
	if err := printJSON(&text, r); err != nil {
		return cannot(err)
	}
	differs := false
	switch {
	case f.update:
		if err := os.WriteFile(f.golden, text.Bytes(), 0o644); err != nil {
			return cannot(err)
		}
	case f.golden != "":
		want, err := os.ReadFile(f.golden)
		if err != nil {
			return cannot(err)
		}
		if differs = !bytes.Equal(want, text.Bytes()); differs {
			if err := tellDifference(stdout, f.golden, want, text.Bytes()); err != nil {
				return cannot(err)
			}
		}
	default:
		if _, err := stdout.Write(text.Bytes()); err != nil {
			return cannot(err)
		}
	}
	if r.Fault != nil {
		return &codedError{code: exitProblems, err: fmt.Errorf("%s:%d:%d: %s", name, r.Fault.Line, r.Fault.Column, r.Fault.Message)}
	}
	if differs {
		return &codedError{code: exitProblems}
	}
	return nil
}

// tellDifference prints the first line in which two texts differ.
func tellDifference(w io.Writer, name string, want, got []byte) error {
	a, b := bytes.Split(want, []byte("\n")), bytes.Split(got, []byte("\n"))
	i := 0
	for i < len(a) && i < len(b) && bytes.Equal(a[i], b[i]) {
		i++
	}
	at := func(lines [][]byte) []byte {
		if i < len(lines) {
			return lines[i]
		}
		return nil
	}
	_, err := fmt.Fprintf(w, "%s line %d differs\n- %s\n+ %s\n", name, i+1, at(a), at(b))
	return err
}
