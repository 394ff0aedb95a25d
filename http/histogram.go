package httpapi

// serveHistogram answers with a table of percentiles. It is text, whichever types are accepted.
func serveHistogram(x *exchange) error {
	table, ok := x.s.opts.Statistics.Histogram(x.out[:0], x.route.argument)
	if !ok {
		return problemNoRoute
	}
	x.out = table
	x.media = typeText
	x.ok()
	return nil
}
