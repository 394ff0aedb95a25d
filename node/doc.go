// Package node puts a node together: it is the one place where the concrete
// types of all packages meet. Open builds and starts everything in order, Close
// takes it down in reverse.
package node
