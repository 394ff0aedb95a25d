package replication

// StopSnapshots has no more manifests written until Close, so that a copy of
// the folder is one that a crash could leave.
func StopSnapshots(r *Replica) { r.snaps.stop() }
