// Package history writes what the scavenges of this node did into the database,
// where the UI and operators read it. No run waits for it, and none fails
// because of it.
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
// The metadata of each of these streams limit the age of its events, let
// operators read them and leave everything else to administrators. They are
// written before the first event of a run, unless they are so already; the order
// and the spelling of the JSON do not matter. A $tb is left as it is: what an
// administrator truncated or deleted stays out of sight.
//
// # Writing
//
// A Writer has a queue and one goroutine that writes the events, one at a time and
// in the order in which they were queued:
//
//  1. Before the first event of a run, the metadata of the run's stream. Nothing is
//     written to a stream that anybody could not be kept from, or that would stay for ever.
//  2. The event. Its id was made when it was queued, so that a write whose outcome
//     is unknown can be repeated.
//  3. For the first and the last event of a run, the metadata of $scavenges and the
//     link, with the number that step 2 was answered with. The id of a link follows
//     from its data, so that the same link is not written twice.
//
// A step that fails is tried again five times, after 1, 2, 4, 8 and 16 seconds; that
// is longer than an election of 30 seconds takes even when every try fails at once.
// Then the event is given up, which is logged once, and the next is written.
// While the cluster takes no writes (there is no leader, it is too busy or out of disk
// space) nothing is given up: the Writer waits, as long as the process lives. That a
// run ended while its node was alone is recorded when it is no longer alone.
//
// What waits is bounded. Of the events about chunks, merges and the index at most
// 10,000 wait; later ones are left out and counted. The first and the last event of a
// run always have room, up to 5,000 runs that began while nothing could be
// written; of a later run nothing is written. The totals of a run are in its last
// event, so they are right whatever was left out.
//
// Close lets the queue be written for three seconds, but waits for nobody: the
// first write that is refused ends it. If the node ends before, or is killed,
// the next section applies.
//
// # Interrupted runs
//
// A run whose node ended has no last event. When a node first takes part in its
// cluster after a start, and its log has caught up, CloseInterrupted reads
// $scavenges backward, a page at a time, as far as it is visible, which its maximal
// age bounds. Each run of the node's own endpoint with a first and without a last
// event there is completed: result Failed, sums from the events of the run, and as
// its duration the time from its first to its latest event; nobody knows how long
// it went on, and how long the node was down is not to be counted. If the last
// event exists and only its link is missing, the link is written.
//
// Two looks at the same time, or one from a log that lags behind an earlier one, do no
// harm: the last event is written with the version of the stream that was summed
// up, and a conflict makes the Writer read again. Runs that this Writer began are
// left alone, as their last events may still wait in the queue.
package history
