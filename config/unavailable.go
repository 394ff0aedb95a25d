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
	secured := !c.Insecure // an insecure node leaves certificates aside by definition
	rows := []unavailable{
		{c.ClusterSize > 1, "clusters are not available in this version: ClusterSize must be 1"},
		{c.ReadOnlyReplica, "read-only replicas are not available in this version: ReadOnlyReplica must be false"},
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
		case groupCertificate, groupCertificateFile, groupCertificateStore:
			rows = append(rows, unavailable{secured && changed, "TLS is not available in this version: " + o.name + " must not be set"})
		case groupAuth:
			external := strings.HasSuffix(o.name, "Type") && !strings.EqualFold(c.current(o), o.def)
			rows = append(rows, unavailable{external, "authentication and authorisation plug-ins do not exist: " + o.name + " must be " + o.def})
		}
	}
	return rows
}
