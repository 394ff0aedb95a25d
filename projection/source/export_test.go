package source

import "context"

// OpenBounded opens a reader that reads little at once.
func OpenBounded(ctx context.Context, o Options, events, bytes, records, places int) (*Reader, error) {
	return open(ctx, o, bounds{events, bytes, records, places})
}

// Held is how many entries the buffers of a reader have room for.
func (r *Reader) Held() int {
	n := cap(r.buffer)
	if in, ok := r.in.(*streamsInput); ok {
		for _, s := range in.streams {
			n += cap(s.queue)
		}
	}
	return n
}
