// Package main writes the Go files of grpc/proto/*.proto, or checks with -check
// that they are what it would write. It compiles the .proto files itself and
// runs the two generators that tools/go.mod pins, so nothing needs to be installed.
// It runs in the folder tools.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const (
	ours = "github.com/annalsdb/annals"
	// theirs has the stubs of the other services, and the .proto file that ours import.
	theirs = "github.com/kurrent-io/KurrentDB-Client-Go"
)

func main() {
	check := flag.Bool("check", false, "write nothing, fail if a file would change")
	flag.Parse()
	if err := os.Chdir(".."); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
	if err := run(context.Background(), *check); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, check bool) error {
	request, err := compile(ctx)
	if err != nil {
		return err
	}
	files := map[string]string{}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := generate(ctx, plugin, request, files); err != nil {
			return fmt.Errorf("run %s: %w", plugin, err)
		}
	}
	present, err := filepath.Glob("grpc/*/*.pb.go")
	if err != nil {
		return err
	}
	for _, name := range present {
		if _, ok := files[name]; !ok {
			files[name] = "" // its .proto file is gone
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := settle(name, files[name], check); err != nil {
			return err
		}
	}
	return nil
}

// compile makes of the .proto files what a generator reads: imported files come
// before those that import them.
func compile(ctx context.Context) (*pluginpb.CodeGeneratorRequest, error) {
	names, err := filepath.Glob("grpc/proto/*.proto")
	if err != nil || len(names) == 0 {
		return nil, errors.Join(errors.New("there is no grpc/proto/*.proto here"), err)
	}
	dir, err := command(ctx, nil, "list", "-m", "-f", "{{.Dir}}", theirs)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", theirs, err)
	}
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
			ImportPaths: []string{".", filepath.Join(strings.TrimSpace(string(dir)), "protos")},
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("compile the .proto files: %w", err)
	}
	var all []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		all = append(all, protoutil.ProtoFromFileDescriptor(f))
	}
	for _, f := range compiled {
		add(f)
	}
	return &pluginpb.CodeGeneratorRequest{FileToGenerate: names, Parameter: new("module=" + ours), ProtoFile: all}, nil
}

// generate adds what a plugin of protoc answers to files.
func generate(ctx context.Context, plugin string, request *pluginpb.CodeGeneratorRequest, files map[string]string) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	out, err := command(ctx, in, "-C", "tools", "tool", plugin)
	if err != nil {
		return err
	}
	var answer pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return errors.New(answer.GetError())
	}
	for _, f := range answer.File {
		files[f.GetName()] = f.GetContent()
	}
	return nil
}

// settle makes a file hold text, without any removes it; check only compares.
func settle(name, text string, check bool) error {
	have, err := os.ReadFile(name)
	switch {
	case err == nil && text != "" && string(have) == text:
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	case check:
		return fmt.Errorf("%s is not what make generate writes", name)
	case text == "":
		return os.Remove(name)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

// command runs the Go tool, of another name where GO says so, and returns what it prints.
func command(ctx context.Context, in []byte, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, cmp.Or(os.Getenv("GO"), "go"), args...)
	c.Stdin, c.Stderr = bytes.NewReader(in), os.Stderr
	return c.Output()
}
