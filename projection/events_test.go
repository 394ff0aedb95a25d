package projection_test

import "testing"

func TestReadEventsRequests(t *testing.T) {
	test(t, func(b *bench) {
		for text, want := range map[string]string{
			`[`:                             "Failed to parse the request",
			`{}`:                            "The query is required",
			`{"query":{"allStreams":true}}`: "The position is required",
			`{"query":{"allStreams":true},"position":{"$c":0,"$p":-1},"maxEvents":0}`:    "maxEvents should be positive",
			`{"query":{},"position":{"$c":0,"$p":-1}}`:                                   "None of streams and categories are included",
			`{"QUERY":{"AllStreams":true,"streams":["s"]},"position":{"$c":0,"$p":-1}}`:  "Both FromAll and specific categories/streams cannot be set",
			`{"query":{"streams":["s"],"categories":["c"]},"position":{"$c":0,"$p":-1}}`: "Streams and categories cannot be included in a filter at the same time",
			`{"query":{"allStreams":true,"unknown":1},"position":{"$s":{"s":-1}}}`:       "The position is not one of the query : the position is one of another kind of source: numbers of streams instead of a place in the log",
		} {
			_, err := b.ReadEvents(b.ctx, []byte(text), somebody)
			b.refused(err, want)
		}
	})
}
