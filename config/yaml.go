package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// parseYAML reads a mapping from option names to values. Values are taken as they
// stand in the file, so that a number or a flag reads the same here, in the
// environment and on the command line. A sequence is joined with commas and null is
// as if the key were not there. A mapping below a name is a section: its members are
// named section:member. Places of settings name the file.
func (l *loader) parseYAML(content []byte, name string) (found []setting, err error) {
	// Some editors put a byte order mark before the text. It does not belong to a name.
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	// Our own check for duplicates knows that NodePort and node-port are the same.
	file, err := parser.ParseBytes(content, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax yaml.Error
		if errors.As(err, &syntax) {
			at, message := syntax.GetToken().Position.Line, syntax.GetMessage()
			if message == "non-map value is specified" || message == "unexpected key name" {
				message = "write Name: value"
			}
			return nil, fmt.Errorf("line %d: %s", at, message)
		}
		return nil, fmt.Errorf("not YAML: %q", err.Error())
	}
	var pairs []*ast.MappingValueNode
	documents := 0
	for _, document := range file.Docs {
		switch body := document.Body.(type) {
		case nil, *ast.NullNode, *ast.CommentGroupNode:
			continue
		case *ast.MappingNode:
			pairs = body.Values
		case *ast.MappingValueNode:
			pairs = []*ast.MappingValueNode{body}
		default:
			return nil, fmt.Errorf("line %d: write Name: value", line(body))
		}
		if documents++; documents > 1 {
			return nil, errors.New("more than one YAML document")
		}
	}
	return l.yamlSettings(pairs, name, "")
}

// yamlSettings reads a mapping whose names begin with a prefix.
func (l *loader) yamlSettings(pairs []*ast.MappingValueNode, file, prefix string) (found []setting, err error) {
	seen := map[string]string{}
	for _, pair := range pairs {
		name, ok := scalar(pair.Key)
		if !ok || fold(name) == "" {
			return nil, fmt.Errorf("line %d: the name of an option is expected", line(pair))
		}
		if before, twice := seen[fold(name)]; twice {
			return nil, fmt.Errorf("line %d: duplicate key %s, given before as %s", line(pair), name, before)
		}
		seen[fold(name)] = name
		if below := mapping(pair.Value); below != nil && l.lookup(name) == nil {
			more, err := l.yamlSettings(below, file, prefix+name+sectionMark)
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
			continue
		}
		value, given, err := yamlValue(pair.Value)
		if err != nil && (prefix == "" || l.lookup(name) != nil) {
			return nil, fmt.Errorf("line %d: option %s: %w", line(pair), name, err)
		}
		if given || err != nil {
			at := fmt.Sprintf("%s line %d", file, line(pair))
			found = append(found, setting{name: prefix + name, value: value, source: sourceYaml, at: at})
		}
	}
	return found, nil
}

// mapping returns the pairs of a mapping, nil for other nodes.
func mapping(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

// yamlValue returns the text of a scalar or of a sequence of scalars. It is not given if null.
func yamlValue(n ast.Node) (text string, given bool, err error) {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "", false, nil
	case *ast.SequenceNode:
		items := make([]string, len(n.Values))
		for i, v := range n.Values {
			item, ok := scalar(v)
			if !ok {
				return "", false, errors.New("an item of the sequence is not a plain value")
			}
			if strings.Contains(item, ",") {
				return "", false, fmt.Errorf("the item %q holds a comma", item)
			}
			items[i] = item
		}
		return strings.Join(items, ","), true, nil
	default:
		text, ok := scalar(n)
		if !ok {
			return "", false, errors.New("neither a plain value nor a sequence of such")
		}
		return text, true, nil
	}
}

// scalar returns what the file says, before YAML makes a number or a flag of it.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return strings.TrimSuffix(n.Value.Value, "\n"), true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	default:
		return "", false
	}
}

func line(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}
