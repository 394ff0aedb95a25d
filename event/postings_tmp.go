package event
func Postings(stream, eventType string) []uint64 { return nil }
