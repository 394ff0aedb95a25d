package script

import (
	"fmt"

	"github.com/annalsdb/annals/projection/handler"
)

const (
	// maxSource is how long a script may be, in bytes.
	maxSource = 1 << 20
	// maxBrackets is how deep brackets may nest in a script.
	maxBrackets = 400
	// maxChain is how many words and signs may follow each other within the same
	// brackets without a semicolon or comma between them.
	maxChain = 20_000
)

// checkNesting refuses a text that the engine's parser, which recurses, would need too
// much stack for: no stack overflow can be caught. It does not know strings from code,
// so that it may count too much, and a chain with separators in strings passes: the
// length of the source bounds that one.
func checkNesting(source string) error {
	if len(source) > maxSource {
		return &handler.Fault{Message: fmt.Sprintf("the script is longer than %d bytes", maxSource)}
	}
	var chains [maxBrackets + 1]int
	depth, line, word := 0, 1, false
	opened := 0
	comment := byte(0) // in it nothing separates: '*' until its end, '/' until the line's
	for i := range len(source) {
		c := source[i]
		isWord := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
		begins := isWord && !word
		word = isWord
		switch {
		case begins:
			chains[depth]++
		case isWord || c == ' ' || c == '\t' || c == '\r':
		case c == '\n':
			line++
			if comment == '/' {
				comment = 0
			}
		case c == ';' || c == ',':
			if comment == 0 {
				chains[depth] = 0
			}
		case c == '/' && comment == 0 && i+1 < len(source) && (source[i+1] == '/' || source[i+1] == '*'):
			comment, opened = source[i+1], i
		case c == '/' && comment == '*' && source[i-1] == '*' && i >= opened+3:
			comment = 0
		case c == '(' || c == '[' || c == '{':
			if depth == maxBrackets {
				return &handler.Fault{Message: fmt.Sprintf("brackets are nested deeper than %d levels", maxBrackets), Line: line, Column: 1}
			}
			chains[depth]++
			depth++
			chains[depth] = 0
		case c == ')' || c == ']' || c == '}':
			depth = max(depth-1, 0)
		default:
			chains[depth]++
		}
		if chains[depth] > maxChain {
			return &handler.Fault{Message: fmt.Sprintf("more than %d words and signs without a semicolon or comma between them", maxChain), Line: line, Column: 1}
		}
	}
	return nil
}
