package eventlog

// SwitchChunk puts a chunk file in the place of those that it covers.
func (l *Log) SwitchChunk(tmp string) error {
	l.jobs.RLock()
	defer l.jobs.RUnlock()
	_, err := l.switchChunk(tmp, nil)
	return err
}
