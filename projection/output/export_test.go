package output

// SetMaxKnown changes how many streams an output remembers, before its first emission.
func (o *Output) SetMaxKnown(n int) { o.maxKnown = n }

// Known returns how many streams an output remembers.
func (o *Output) Known() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.known)
}
