// Package source reads the events that the definition of a projection selects,
// in order, from a position on, and tells the position behind each of them.
package source
