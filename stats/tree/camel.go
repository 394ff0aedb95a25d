package tree

import "unicode"

// camelCase lowers the capitals that a key begins with, except the one that
// begins its next word: MainQueue becomes mainQueue, TCPQueue tcpQueue, IO queue
// io queue. What does not begin with a capital stays as it is.
func camelCase(name string) string {
	in := []rune(name)
	if len(in) == 0 || !unicode.IsUpper(in[0]) {
		return name
	}
	for i, r := range in {
		if !unicode.IsUpper(r) {
			break
		}
		// The last of several capitals belongs to the word that follows it.
		if i > 0 && i+1 < len(in) && !unicode.IsUpper(in[i+1]) && !unicode.IsSpace(in[i+1]) {
			break
		}
		in[i] = unicode.ToLower(r)
	}
	return string(in)
}
