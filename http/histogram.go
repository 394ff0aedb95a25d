package httpapi

// histogram answers with a table of percentiles. It is text whatever was accepted.
func (x *exchange) histogram() error {
	table, ok := x.s.opts.Statistics.Histogram(x.out[:0], x.route.argument)
	if !ok {
		return problemNoRoute
	}
	x.out = table
	x.media = typeText
	x.ok()
	return nil
}
