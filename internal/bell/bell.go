// Package bell wakes goroutines that wait at a channel with room for one.
package bell

// Ring has the one who waits look at what there is to do. It never waits itself.
func Ring(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
