package source

import "context"

// OpenBounded opens a reader that reads little at once.
func OpenBounded(ctx context.Context, o Options, events, bytes, records, places int) (*Reader, error) {
	return open(ctx, o, bounds{events, bytes, records, places})
}
