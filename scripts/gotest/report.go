//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// event is a line of go test -json, as go doc test2json has it.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// result gathers the output of a package until its end is known.
type result struct {
	own   strings.Builder             // of no test: "ok", a panic, what TestMain prints
	tests map[string]*strings.Builder // of the tests that have not passed
	order []string
}

// report prints what go test -json tells: of a package that passed its line, of one
// that failed the output of the tests that failed too.
func report(w io.Writer, r io.Reader) error {
	packages := map[string]*result{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if err := one(w, packages, line); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func one(w io.Writer, packages map[string]*result, line []byte) error {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		_, err := w.Write(line) // go itself speaks, not a test.
		return err
	}
	if strings.HasPrefix(e.Action, "build-") {
		_, err := io.WriteString(w, e.Output)
		return err
	}
	p := packages[e.Package]
	if p == nil {
		p = &result{tests: map[string]*strings.Builder{}}
		packages[e.Package] = p
	}
	switch {
	case e.Action == "output":
		p.add(e)
	case e.Test != "" && (e.Action == "pass" || e.Action == "skip"):
		delete(p.tests, e.Test)
	case e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
		delete(packages, e.Package)
		return p.print(w, e.Action == "fail")
	}
	return nil
}

func (p *result) add(e event) {
	if e.Test == "" {
		p.own.WriteString(e.Output)
		return
	}
	out := p.tests[e.Test]
	if out == nil {
		out = &strings.Builder{}
		p.tests[e.Test] = out
		p.order = append(p.order, e.Test)
	}
	out.WriteString(e.Output)
}

func (p *result) print(w io.Writer, failed bool) error {
	text := p.own.String()
	if failed {
		for _, name := range p.order {
			if out := p.tests[name]; out != nil {
				if _, err := io.WriteString(w, out.String()); err != nil {
					return err
				}
				delete(p.tests, name)
			}
		}
	} else {
		text = strings.TrimPrefix(text, "PASS\n")
	}
	_, err := fmt.Fprint(w, text)
	return err
}
