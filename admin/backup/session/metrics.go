package session

import (
	"maps"
	"slices"

	"github.com/annalsdb/annals/stats"
)

func (s *Service) watch(r *stats.Registry) {
	r.GaugeFunc("annals_backup_sessions", "Backup sessions that are open.", func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(len(s.sessions))
	})
	r.GaugeFunc("annals_backup_pinned_bytes", "Bytes of files that are on disk for backup sessions alone: the database has replaced them.",
		func() float64 { return float64(s.PinnedBytes()) })
}

// PinnedBytes is how many bytes leave the disk when all sessions end.
func (s *Service) PinnedBytes() (bytes int64) {
	s.mu.Lock()
	open := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	seen := map[any]bool{}
	for _, one := range open {
		one.pin.Replaced(func(file any, n int64) {
			if !seen[file] {
				seen[file] = true
				bytes += n
			}
		})
	}
	return bytes
}
