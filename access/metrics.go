package access

import "github.com/annalsdb/annals/stats"

// metrics are those of this package. Registering them more than once gives the same ones.
type metrics struct {
	cached, verified, refused, busy *stats.Counter
	absent, changed                 *stats.Counter
	entries                         *stats.Gauge
	denied                          *stats.Counter
	waiting                         *stats.Gauge
	lineFull, noRoom, tooLong       *stats.Counter
	hashing                         *stats.Histogram
	renewed                         *stats.Counter
}

func newMetrics(r *stats.Registry) *metrics {
	login := func(result string) *stats.Counter {
		return r.Counter("annals_access_logins_total", "Requests with a name and a password: found in the cache, verified by hashing, refused, or not checked because too many waited.",
			stats.Label{Name: "result", Value: result})
	}
	miss := func(reason string) *stats.Counter {
		return r.Counter("annals_access_cache_misses_total", "Requests not answered from the cache: the credentials are not in it, or their user changed. Hits are the cached logins.",
			stats.Label{Name: "reason", Value: reason})
	}
	refused := func(reason string) *stats.Counter {
		return r.Counter("annals_access_checks_refused_total", "Waits for a hash that ended without it: the line was full, there was no room for more from that address, or it took too long.",
			stats.Label{Name: "reason", Value: reason})
	}
	return &metrics{
		cached:   login("cached"),
		verified: login("verified"),
		refused:  login("refused"),
		busy:     login("busy"),
		absent:   miss("absent"),
		changed:  miss("changed"),
		entries:  r.Gauge("annals_access_cache_entries", "Logins in the cache."),
		denied:   r.Counter("annals_access_stream_denied_total", "Requests refused because the caller lacks a right to the stream."),
		waiting:  r.Gauge("annals_access_hash_waiting", "Passwords that wait to be hashed."),
		lineFull: refused("line_full"),
		noRoom:   refused("no_room"),
		tooLong:  refused("too_long"),
		hashing:  r.Histogram("annals_access_hash_seconds", "Time taken by one hash of a password.", stats.DurationBounds),
		renewed:  r.Counter("annals_access_upgrades_total", "Weak password hashes that were replaced after a login."),
	}
}
