package eventlog

// SwitchChunk puts a chunk file in the place of those that it covers.
func (l *Log) SwitchChunk(tmp string) error {
	l.Chunks.jobs.RLock()
	defer l.Chunks.jobs.RUnlock()
	_, err := l.Chunks.switchChunk(tmp, nil)
	return err
}
