package event

// LinkReader decides which links a read resolves: those to streams that the reader has
// the right to read. A read without one resolves no link, so that a caller of whom no
// rights are known is shown nothing of other streams.
type LinkReader interface {
	// MayRead reports whether the reader may see events of a stream. info is what is known
	// of the stream, whether or not it exists.
	MayRead(stream string, info *StreamInfo) (bool, error)
}

// EveryLink is for reads of the database itself: every link is resolved.
var EveryLink LinkReader = everyLink{}

type everyLink struct{}

func (everyLink) MayRead(string, *StreamInfo) (bool, error) { return true, nil }

// NoLink is for readers of whom no rights are known: every link is dead.
var NoLink LinkReader = noLink{}

type noLink struct{}

func (noLink) MayRead(string, *StreamInfo) (bool, error) { return false, nil }

// For returns a resolved event as a reader may see it: as it is, or, where the reader may not
// see the target of the link, Unresolved. It is for what was read for several readers.
// info tells what is known of a stream.
func (r *Resolved) For(links LinkReader, info func(stream string) (StreamInfo, error)) (*Resolved, error) {
	if r.Target == nil {
		return r, nil
	}
	of, err := info(r.TargetStream)
	if err != nil {
		return nil, err
	}
	if links == nil {
		links = NoLink
	}
	may, err := links.MayRead(r.TargetStream, &of)
	switch {
	case err != nil:
		return nil, err
	case !may:
		return r.Unresolved(), nil
	}
	return r, nil
}

// Unresolved returns a resolved link as who may not see its target is shown it: as a link
// to an event that does not exist. Nothing of the target is left.
func (r *Resolved) Unresolved() *Resolved {
	return &Resolved{Record: r.Record, Link: LinkDead, TargetStream: r.TargetStream, TargetNumber: r.TargetNumber}
}
