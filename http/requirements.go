package httpapi

import "github.com/annalsdb/annals/http/request"

// openings is the one place where the options about callers without credentials
// are read. That about streams is part of Access, which judges streams.
func (o *Options) openings() request.Opening {
	var open request.Opening
	if o.AllowAnonymousEndpointAccess {
		open |= request.OpenEndpoints
	}
	if o.OverrideAnonymousEndpointAccessForGossip {
		open |= request.OpenGossip
	}
	return open
}
