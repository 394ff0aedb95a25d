// Package lint holds the house rules that no general tool knows, as tests over
// the source of the whole module: which package may import which, what is
// forbidden where, and how large a file may grow. It reads the files itself
// rather than asking the Go tool, so that files for other platforms and build tags obey too, and so
// that it works while a package does not compile. Only the modules are counted by the Go tool.
package lint
