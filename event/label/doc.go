// Package label reads what an event says of itself: its category, its type, its correlation id and
// its tags. It says which of them the event is found by, and refuses writes whose tags no query
// could find. DESIGN.md has the rules.
package label
