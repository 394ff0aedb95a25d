package index

// WaitMerges returns once no merge is due.
func (x *Index) WaitMerges() {
	for {
		<-x.mergeTurn
		due := false
		if s := x.acquire(); s != nil {
			_, _, due = s.dueMerge(x.opt.MaxAutoMergeLevel)
			s.release()
		}
		x.mergeTurn <- struct{}{}
		if !due {
			return
		}
	}
}

// ForgetChecks is what the index does every ten seconds.
func ForgetChecks(x *Index) { forgetChecks(x) }
