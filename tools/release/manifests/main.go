// Package main reads Kubernetes objects in YAML from standard input and fails on a field that the
// API does not know, or of another type. It needs no network: the types of the API are compiled in.
// Kinds of operators, such as ServiceMonitor, are only named.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) (err error) {
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	documents := yaml.NewYAMLReader(bufio.NewReader(in))
	checked, unknown := 0, []string{}
	for {
		text, e := documents.Read()
		if errors.Is(e, io.EOF) {
			break
		}
		if e != nil {
			return e
		}
		_, kind, e := strict.Decode(text, nil, nil)
		switch {
		case runtime.IsMissingKind(e): // Nothing but comments.
		case runtime.IsNotRegisteredError(e):
			if !slices.Contains(unknown, kind.Kind) {
				unknown = append(unknown, kind.Kind)
			}
		case e != nil:
			err = errors.Join(err, fmt.Errorf("%v: %w", kind, e))
		default:
			checked++
		}
	}
	if checked == 0 {
		err = errors.Join(err, errors.New("no object of the API was checked"))
	}
	_, e := fmt.Fprintf(out, "%d objects fit the API; only rendered: %v\n", checked, unknown)
	return errors.Join(err, e)
}
