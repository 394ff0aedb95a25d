// Package projection keeps the set of projections: JavaScript queries over
// events, and the system projections. DESIGN.md says how its parts work together.
package projection
