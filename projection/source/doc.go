// Package source reads the events that the definition of a projection selects, in order, from a
// position on, and tells the position after each of them.
//
// There are two kinds of input. The log is read with a filter that looks at stream and type before
// anything else of a record is read. Streams (a category is the stream of links that $by_category
// writes) are read by pages, each with its links resolved, and merged by log position: an event is
// handed out once every other stream is known to hold no earlier one. It is known once the stream
// was read up to the end that it had when the log already ended after the event. The merge of
// several streams is therefore the same whenever it is done, and needs no window of time.
//
// A reader owns no goroutine. At the end of the input Fill waits with one wait, for the log or for
// any of its streams. The buffer is bounded by count and by bytes.
package source
