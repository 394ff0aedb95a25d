package event

// MemberError says why a change of the cluster's membership cannot be done. The
// text is meant for the operator who asked for it; nothing was changed.
type MemberError struct {
	Text string
}

func (e *MemberError) Error() string { return e.Text }
