// Package history records the scavenges of this node in the database, where the UI and operators
// read it. No run waits for it, and none fails because of it.
//
// # Streams
//
// A run has a stream $scavenges-<id>. Its events, all of them JSON:
//
//	$scavengeStarted          when it begins
//	$scavengeChunksCompleted  for every chunk file that was executed
//	$scavengeMergeCompleted   for every group of chunk files that were to be merged
//	$scavengeIndexCompleted   for every table of the index
//	$scavengeCompleted        when it has ended
//
// The stream $scavenges holds links to the first and to the last event of every
// run of every node: events of type $> with the data <number>@$scavenges-<id>.
// The payloads are in events.go, and testdata shows one of each.
//
// The metadata of each of these streams limit the age of its events, let operators read them and
// leave everything else to administrators. They are written before the first event of a run, unless
// the stream has them already; the order and the spelling of the JSON do not matter. A $tb stays as
// it is: events that an administrator truncated or deleted stay hidden.
//
// # Writing
//
// A Writer has a queue and one goroutine that writes the events, one at a time and
// in the order in which they were queued:
//
//  1. Before the first event of a run, the metadata of the run's stream. Nothing is written to a
//     stream that everyone could read, or that would stay for ever.
//  2. The event. Its id was made when it was queued, so that a write whose outcome
//     is unknown can be repeated.
//  3. For the first and the last event of a run, the metadata of $scavenges and the
//     link, with the number that step 2 was answered with. The id of a link follows
//     from its data, so that the same link is not written twice.
//
// A step that fails is tried again five times, after 1, 2, 4, 8 and 16 seconds; that is longer than
// an election of 30 seconds takes even when every try fails at once. Then the event is given up,
// which is logged once, and the next is written. While the cluster takes no writes (there is no
// leader, it is too busy or out of disk space) nothing is given up: the Writer waits, as long as
// the process lives. The end of a run on a node that was cut off is recorded when the node is
// connected again. The queue is bounded. Of the events about chunks, merges and the index at most
// 10,000 wait; later ones are left out and counted. The first and the last event of a run always
// have room, up to 5,000 runs that began while nothing could be written; of a later run nothing is
// written. The totals of a run are in its last event, so they are right even if events were left
// out. Close lets the queue be written for three seconds, but does not wait for a leader: the
// first refused write ends it. If the node ends before that, or is killed, the next section
// applies.
//
// # Interrupted runs
//
// A run whose node ended has no last event. When a node first takes part in its cluster after a
// start, and its log has caught up, CloseInterrupted reads $scavenges backward, a page at a time,
// as far as it is visible, which its maximal age bounds. Each run of the node's own endpoint that
// has a first and no last event there is completed: result Failed, sums from the events of the run,
// and as its duration the time from its first to its latest event. The real duration is not known,
// and the time while the node was down must not count. If the last event exists and only its link
// is missing, the link is written. Two calls at the same time, or one on a log that lags, do no
// harm: the last event is written with the version of the stream that was summed up, and a conflict
// makes the Writer read again. Runs that this Writer began are left alone, as their last events
// may still wait in the queue.
package history
