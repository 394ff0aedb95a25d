package config

import "strings"

// unavailable is one row of what this version does not do.
type unavailable struct {
	asked bool
	line  string
}

// unavailable lists the options that this version does not act on and that must
// not be passed over in silence, because the operator would believe to have
// something that is not there. A row goes when the code behind it comes.
func (c *Config) unavailable() []unavailable {
	rows := []unavailable{
		{c.RunProjections != ProjectionsNone, "projections are not available in this version: RunProjections must be None"},
		{c.EnableUnixSocket, "redaction is not available in this version: EnableUnixSocket must be false"},
		{c.EnableHistograms, "histograms are not available in this version: EnableHistograms must be false"},
		{c.WriteStatsToDb, "statistics are not available in this version: WriteStatsToDb must be false"},
		{!c.EnableAtomPubOverHttp, "serving HTTP without /streams is not available in this version: EnableAtomPubOverHttp must be true"},
		{c.LogHttpRequests, "a log of requests is not available in this version: LogHttpRequests must be false"},
		{c.LogFailedAuthenticationAttempts, "a log of refused logins is not available in this version: LogFailedAuthenticationAttempts must be false"},
		{c.UnsafeDisableFlushToDisk, "writing without flushing is not available in this version: UnsafeDisableFlushToDisk must be false"},
		{c.Dev, "the development mode is not available in this version: Dev must be false"},
	}
	table := c.table()
	for i := range table {
		o := &table[i]
		changed := c.current(o) != o.def
		switch o.group {
		case groupCertificateStore:
			rows = append(rows, unavailable{!c.Insecure && changed, "certificate stores are not there on this system: " + o.name + " must not be set, CertificateFile names a file"})
		case groupAuth:
			external := strings.HasSuffix(o.name, "Type") && !strings.EqualFold(c.current(o), o.def)
			rows = append(rows, unavailable{external, "authentication and authorisation plug-ins do not exist: " + o.name + " must be " + o.def})
		}
	}
	return rows
}
