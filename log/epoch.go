package eventlog

import (
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/log/chunkfile"
)

// findEpoch returns where the newest term begins, -1 in an empty log: as the
// walk saw it, else as the checkpoint file says if the log agrees (it may be
// older than the newest frames), else by reading the chunk in which the term begins.
func (r *recovery) findEpoch() (epoch int64, err error) {
	if r.tail.Index == 0 || r.epoch >= 0 {
		return r.epoch, nil
	}
	l := r.l
	epoch, err = r.readEpoch()
	if event.IsCorruption(err) {
		// It is for show only: no reason to refuse the start.
		l.logger.Warn("the start of the newest term cannot be read", logkey.Error, err)
		epoch = l.syncer.chk.Epoch.Value
		if epoch >= r.tail.End {
			epoch = -1
		}
		err = nil
	}
	return epoch, err
}

func (r *recovery) readEpoch() (epoch int64, err error) {
	l := r.l
	set := newChunkSet(l.files, l.closeFailed)
	defer set.release()
	v := view{&published{set: set, tail: r.tail}}
	defer chunkfile.GuardFaults(&err)()
	if epoch := l.syncer.chk.Epoch.Value; epoch >= 0 && epoch < r.tail.End {
		before, _, err := v.frameBefore(epoch)
		if err == nil && (before == nil || before.Term < r.tail.Term) {
			var at int64
			var term uint64
			if at, term, err = v.firstFrame(epoch, 0); err == nil && at == epoch && term == r.tail.Term {
				return epoch, nil
			}
		}
		if err != nil && !event.IsCorruption(err) {
			return -1, err
		}
	}
	for _, c := range l.files {
		if !c.Complete || c.Footer.LastTerm == r.tail.Term {
			epoch, _, err = v.firstFrame(c.Start(), r.tail.Term)
			return epoch, err
		}
	}
	return -1, nil
}

// firstFrame returns the start and term of the first frame at or after a position whose term is at
// least the given one; -1 when there is none.
func (v view) firstFrame(position int64, term uint64) (first int64, is uint64, err error) {
	for it := range v.forward(position, &err) {
		if it.IsTrailer() && it.Trailer().Term >= term {
			return it.Trailer().First, it.Trailer().Term, nil
		}
	}
	return -1, 0, err
}
