package projection

import (
	"strings"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/run"
)

// status is the state of a projection in the set; its run knows more.
type status uint8

const (
	creating       status = iota // not stored yet
	loaded                       // read from its stream
	preparing                    // its text is being compiled
	starting                     // its run was begun and does not read yet
	loadingStopped               // its checkpoint is being read, and it will not run
	running
	stopping
	aborting
	stopped
	completed
	aborted
	faulted
	deleting
)

// String returns the status as it is shown: do not change.
func (s status) String() string {
	return [...]string{"Creating", "Loaded", "Preparing", "Starting", "LoadingStopped", "Running", "Stopping", "Aborting",
		"Stopped", "Completed", "Aborted", "Faulted", "Deleting"}[s]
}

// ended reports whether the projection came to an end, of one kind or another.
func (s status) ended() bool {
	return s == stopped || s == completed || s == aborted || s == faulted
}

// ticket stands for a caller that waits until a command is done; 0: none waits.
type ticket int64

// change is a command in progress: the new definition, and the effects once it is stored.
type change struct {
	kind   changeKind
	ticket ticket
	// edit changes the definition; nil: it stays.
	edit func(d *definition)

	def definition // what is to be stored
	// forget begins a new epoch with the version that is stored.
	forget bool
	// rebuild is what is to be stored in place of a definition, with beginRebuild and endRebuild.
	rebuild *rebuild
	was     bool                // enabled, when the command was taken
	reads   *handler.Definition // what the new text reads; nil: not known
}

type changeKind uint8

const (
	create changeKind = iota
	enable
	disable
	reset
	abort
	setQuery
	setConfig
	remove
	beginRebuild
	endRebuild
	swapRebuild
)

var changeNames = [...]string{"create", "enable", "disable", "reset", "abort", "update", "configure", "delete", "rebuild", "end the rebuild of", "swap"}

// next says what to do when the run has ended.
type next uint8

const (
	rest next = iota
	again
	goAway
	swapping
)

// attached says what there is of a run.
type attached uint8

const (
	noRun     attached = iota
	liveRun            // it may write
	pastRun            // it has ended, and answers still
	storedRun          // there was none since the projection was loaded: what its checkpoint says
)

// effectKind is something to be done outside of the machine.
type effectKind uint8

const (
	doRegister    effectKind = iota // write the creation; then registered
	doStore                         // write the definition; then stored or notStored
	doPrepare                       // compile the text; then prepared or unprepared
	doRetry                         // likewise, after a pause
	doStart                         // begin a run; then started and ended
	doLoadStopped                   // read the checkpoint; then stoppedLoaded
	doStop                          // end the run, with a checkpoint
	doAbort                         // end the run
	doDrop                          // let go of the run that has ended
	doRemove                        // delete the streams; then vanish
	doForget                        // take the projection out of the set
	doReply                         // answer a ticket
	doFollow                        // run the second version
	doClear                         // delete the checkpoints of a version that is not used
	doCatchUp                       // take the second version to the mark; then caughtUp
)

type effect struct {
	kind   effectKind
	change *change // doStore; doPrepare: may be nil
	gen    int     // doPrepare, doStart, doLoadStopped: what the answer has to name
	ticket ticket  // doReply
	err    error   // doReply
}

// machine is the life of one projection without its effects: each method takes an event and returns
// the effects to carry out, in order. Each compilation, start and read answers with the number of
// its generation, so that a late answer is recognised.
type machine struct {
	def     definition // as it is stored
	version int64      // number of the event that holds it, -1: none
	rebuild *rebuild   // the last that was stored; nil: none
	allowed bool       // the node lets it run

	status  status
	reason  string // why it is faulted
	run     attached
	gen     int
	next    next
	resting status // how it comes to rest when it is not to run: stopped or aborted

	storing *change // being written
	queued  *change // the one that comes after it
	waiter  ticket
}

// transient reports whether nothing of the projection is stored.
func (m *machine) transient() bool { return m.def.Mode == Transient }

// create begins the life of a new projection.
func (m *machine) create(def definition, t ticket, reads *handler.Definition) []effect {
	m.status, m.version, m.resting = creating, -1, stopped
	m.def, m.waiter, m.storing = def, t, &change{kind: create, def: def, reads: reads}
	if m.transient() {
		return m.stored(0)
	}
	return []effect{{kind: doRegister}}
}

// registered says that the creation is stored; with an error that it is not.
func (m *machine) registered(err error) []effect {
	if err != nil {
		return m.vanish(err)
	}
	return []effect{{kind: doStore, change: m.storing}}
}

// vanish takes the projection away, of which nothing is stored any more, with an answer.
func (m *machine) vanish(err error) []effect {
	m.storing = nil
	m.status = deleting
	out := append([]effect{{kind: doForget}}, m.answer(err)...)
	if c := m.queued; c != nil {
		m.queued = nil
		out = append(out, effect{kind: doReply, ticket: c.ticket, err: ErrNotFound})
	}
	return out
}

// load begins the life of a projection that was stored.
func (m *machine) load(def definition, version int64) []effect {
	m.def, m.version, m.status, m.resting = def, version, loaded, stopped
	if def.Deleting {
		m.status = deleting
		return []effect{{kind: doRemove}}
	}
	return m.resumeRebuild()
}

// unreadable begins the life of a projection whose definition makes no sense.
func (m *machine) unreadable(def definition, version int64, reason string) {
	m.def, m.version, m.status, m.reason, m.resting = def, version, faulted, reason, stopped
}

// begin prepares a projection that was loaded.
func (m *machine) begin() []effect {
	if m.status != loaded {
		return nil
	}
	return m.prepare(nil)
}

func (m *machine) answer(err error) []effect {
	t := m.waiter
	m.waiter = 0
	if t == 0 {
		return nil
	}
	return []effect{{kind: doReply, ticket: t, err: err}}
}

// settle answers who waits for the projection to come to rest, or to run. A caller that waits for a
// change that is being stored is answered once its effect is done.
func (m *machine) settle() []effect {
	if m.storing != nil {
		return nil
	}
	return m.answer(nil)
}

// command takes a command, or refuses it.
func (m *machine) command(c *change) []effect {
	reply := func(err error) []effect { return []effect{{kind: doReply, ticket: c.ticket, err: err}} }
	if m.storing != nil && m.status != creating {
		var out []effect
		if q := m.queued; q != nil {
			out = []effect{{kind: doReply, ticket: q.ticket, err: ErrAborted}}
		}
		m.queued = c
		return out
	}
	idle := m.status == stopped || m.status == faulted
	switch {
	case m.status == deleting:
		return reply(ErrNotFound)
	case m.status == creating:
		return reply(&Refused{"Cannot " + changeNames[c.kind] + " a projection that is being created."})
	case c.kind == enable && m.def.Enabled && !m.status.ended():
		return reply(nil)
	case c.kind == setConfig && !idle && !m.transient():
		return reply(&Refused{"Cannot update the config of a projection that hasn't been stopped or faulted."})
	case c.kind == remove && !idle && !m.transient():
		return reply(&Refused{"Cannot delete a projection that hasn't been stopped or faulted."})
	}
	if err, isDone := m.rebuildRefusal(c); err != nil || isDone {
		return reply(err)
	}
	out := m.answer(ErrAborted)
	m.waiter = c.ticket
	c.def, c.was = m.def, m.def.Enabled
	if c.edit != nil {
		c.edit(&c.def)
	}
	c.forget = c.kind == reset || c.kind == setQuery && m.status == completed
	if (c.kind == enable || c.kind == disable || c.kind == abort) && c.def.Enabled == c.was {
		return append(out, m.perform(c)...)
	}
	switch m.storing = c; c.kind {
	case swapRebuild:
		return append(out, m.swap(c)...)
	case beginRebuild:
		c.rebuild.Epoch, c.rebuild.Before = m.def.Epoch, m.def.States
	case endRebuild:
		ended := *m.rebuild
		ended.Status, c.rebuild = rebuildEnded, &ended
	}
	if m.transient() {
		return append(out, m.stored(m.version+1)...)
	}
	return append(out, effect{kind: doStore, change: c})
}

// stored says that the change is stored, as which version.
func (m *machine) stored(version int64) []effect {
	c := m.storing
	m.storing = nil
	m.def, m.version = c.def, version
	if c.forget {
		m.def.Epoch = version
	}
	return m.unqueue(m.perform(c))
}

// notStored says that the change is not stored and will not be.
func (m *machine) notStored(err error) []effect {
	c := m.storing
	m.storing = nil
	if m.status == creating { // Only its creation is stored: that goes, too.
		m.status = deleting
		return append(m.answer(err), effect{kind: doRemove})
	}
	out := m.answer(err)
	if c.kind == swapRebuild {
		out = append(out, m.backOut()...)
	}
	return m.unqueue(out)
}

func (m *machine) unqueue(out []effect) []effect {
	if c := m.queued; c != nil && m.storing == nil {
		m.queued = nil
		out = append(out, m.command(c)...)
	}
	return out
}

// perform does the effects of a change that is stored.
func (m *machine) perform(c *change) []effect {
	live := m.run == liveRun
	switch c.kind {
	case create:
		return m.prepare(c)
	case setConfig:
		return m.answer(nil)
	case remove:
		return m.goAway(live)
	case enable:
		m.resting = stopped
		switch {
		case m.status == stopping, m.status == aborting:
			m.status, m.next = stopping, again
			return nil
		case m.status == running:
			return m.answer(nil)
		case m.status == starting, m.status == preparing, m.status == loaded:
			return nil
		}
		return m.prepare(nil)
	case disable:
		m.resting = stopped
		switch {
		case m.status == running, m.status == starting:
			m.status = stopping
			return []effect{{kind: doStop}}
		case m.status == aborting:
			m.status = stopping
			return nil
		case m.status == faulted && m.run == noRun:
			return m.answer(nil)
		case m.status.ended():
			m.status = stopped
			return m.answer(nil)
		}
		return nil
	case abort:
		switch {
		case live:
			m.status, m.resting = aborting, aborted
			return []effect{{kind: doAbort}}
		case m.status.ended():
			return m.answer(nil)
		case c.was:
			m.resting = aborted
		}
		return nil
	case swapRebuild:
		m.resting = stopped
		return append(m.resumeRebuild(), m.prepare(nil)...)
	case reset, setQuery:
		m.resting = stopped
		if !live {
			return m.prepare(c)
		}
		how := doAbort // Its results are forgotten.
		if c.kind == setQuery && !c.forget {
			how = doStop
		}
		ending := m.status == stopping || m.status == aborting
		m.status, m.next = stopping, again
		if ending && how == doStop {
			return nil
		}
		return []effect{{kind: how}}
	}
	return nil
}

func (m *machine) goAway(live bool) []effect {
	m.status = deleting
	m.gen++
	m.next = goAway
	if live {
		return []effect{{kind: doAbort}}
	}
	return []effect{{kind: doRemove}}
}

func (m *machine) prepare(c *change) []effect {
	m.gen++
	m.status, m.next = preparing, rest
	return []effect{{kind: doPrepare, gen: m.gen, change: c}}
}

// prepared says that the text was compiled.
func (m *machine) prepared(gen int) []effect {
	if gen != m.gen || m.status != preparing {
		return nil
	}
	m.reason = ""
	if m.def.Enabled && m.allowed {
		m.status, m.run = starting, liveRun
		return []effect{{kind: doStart, gen: gen}}
	}
	m.status, m.run = loadingStopped, storedRun
	return []effect{{kind: doDrop}, {kind: doLoadStopped, gen: gen}}
}

// unprepared says why the text cannot be compiled.
func (m *machine) unprepared(gen int, reason string) []effect {
	if gen != m.gen || m.status != preparing {
		return nil
	}
	m.status, m.reason, m.run = faulted, reason, noRun
	return append([]effect{{kind: doDrop}}, m.settle()...)
}

// stoppedLoaded says that the checkpoint of a projection was read that is not to
// run; with a reason that it could not be.
func (m *machine) stoppedLoaded(gen int, reason string) []effect {
	if gen != m.gen || m.status != loadingStopped {
		return nil
	}
	m.status = m.resting
	if reason != "" {
		m.status, m.reason = faulted, reason
	}
	return m.settle()
}

// started says that the run has begun to read.
func (m *machine) started(gen int) []effect {
	if gen != m.gen || m.status != starting {
		return nil
	}
	m.status = running
	return m.settle()
}

// ended says that the run has ended, and writes nothing any more. A
// generation of its own is not needed: there is one run at a time.
func (m *machine) ended(how run.Ending, reason string) []effect {
	if m.run != liveRun {
		return nil
	}
	m.run = pastRun
	if m.next != swapping {
		return m.rests(how, reason)
	}
	m.next = rest
	if how == run.Stopped {
		return []effect{{kind: doCatchUp}}
	}
	m.storing = nil
	return m.unqueue(append(m.answer(errNotSwapped), m.rests(how, reason)...))
}

// rests makes the status what the end of the run says.
func (m *machine) rests(how run.Ending, reason string) []effect {
	switch {
	case m.next == goAway:
		return []effect{{kind: doRemove}}
	case m.next == again:
		return m.prepare(nil)
	case how == run.Faulted:
		m.status, m.reason = faulted, reason
	case m.status == aborting:
		m.status = aborted
	case how == run.Lost:
		// Who leads is to be seen. Until then it is begun again from its checkpoint.
		m.gen++
		m.status = preparing
		return []effect{{kind: doRetry, gen: m.gen}}
	case m.status == stopping || how != run.Completed:
		m.status = stopped
	default:
		m.status = completed
	}
	return m.settle()
}

// text is the status as it is shown, of this and of the run's own.
func (m *machine) text(runner string) string {
	text := m.status.String()
	switch {
	case m.run == noRun:
		return text
	case strings.HasPrefix(runner, text):
		text = runner
	case runner != "":
		text += "/" + runner
	}
	if (m.status == stopped || m.status == faulted) && m.def.Enabled {
		text += " (Enabled)"
	}
	return text
}

// tellsPosition reports whether the position goes with the state.
func (m *machine) tellsPosition() bool {
	switch m.status {
	case running, stopping, aborting, stopped, aborted, faulted:
		return true
	}
	return false
}
