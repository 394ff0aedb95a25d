package access

import "github.com/annalsdb/annals/stats"

// metrics are the figures of this package. Registering them more than once gives the same ones.
type metrics struct {
	cached, verified, refused *stats.Counter
	denied                    *stats.Counter
	waiting                   *stats.Gauge
	hashing                   *stats.Histogram
}

func newMetrics(r *stats.Registry) *metrics {
	login := func(result string) *stats.Counter {
		return r.Counter("access_logins", "Requests with a name and a password, by outcome: found in the cache, verified by hashing, refused.",
			stats.Label{Name: "result", Value: result})
	}
	return &metrics{
		cached:   login("cached"),
		verified: login("verified"),
		refused:  login("refused"),
		denied:   r.Counter("access_stream_denied", "Requests refused because the caller lacks a right to the stream."),
		waiting:  r.Gauge("access_hash_waiting", "Requests that wait for their password to be hashed."),
		hashing:  r.Histogram("access_hash_seconds", "Time taken by one hash of a password.", stats.DurationBounds),
	}
}
