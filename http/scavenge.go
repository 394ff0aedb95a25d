package httpapi

import "net/http"

// Scavenging is not there yet. Its routes are, so that whoever asks is told,
// after the same checks as later; nothing is started and nothing is made up.
var (
	problemNoScavenge = &problem{http.StatusNotImplemented, "Scavenging is not available in this version.", false}

	scavengeResource    = newResource(operate(http.MethodPost, (*exchange).noScavenge))
	scavengeRunResource = newResource(operate(http.MethodGet, (*exchange).noScavenge), operate(http.MethodDelete, (*exchange).noScavenge))
)

func (x *exchange) noScavenge() error { return problemNoScavenge }
