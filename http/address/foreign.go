package address

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// Headers by which a browser says whose page it makes a request for. A page can change none
// of them.
const (
	KeyOrigin = "Origin"
	keySite   = "Sec-Fetch-Site" // only to an address of https, or of this machine
	keyMode   = "Sec-Fetch-Mode"
)

// With Insecure no one is asked who they are, so that whatever a browser sends counts. These checks
// keep pages of other sites from using the browser of someone who can reach the node. Such pages
// can neither change anything (isForeign) nor read (MayCall, and no Access-Control-Allow-Origin for
// them). Where a node asks, such a page lacks the credentials: no browser keeps them.

// FromElsewhere reports whether a request is one of a page of another site. A browser names the
// page's origin with each request whose method is not GET; only old browsers do not when a form is
// sent. So a request of a browser that names none counts as one of another site.
func (h *Names) FromElsewhere(r *http.Request) bool {
	site, origin := One(r.Header[keySite]), r.Header[KeyOrigin]
	switch {
	case site == "same-origin" || site == "none":
		return false
	case site == "cross-site":
		return true
	case len(origin) > 0:
		return len(origin) > 1 || !h.IsOwnOrigin(origin[0], r)
	}
	return site == "" && isBrowsers(r.Header)
}

// IsOwnOrigin reports whether an origin is that of a page which the node called by the
// request's own name, or by one of the node's, has given out. Ports do not matter: other
// servers of the same host are of the same site.
func (h *Names) IsOwnOrigin(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false // "null" among them: no page has to say what it is.
	}
	host := plainHost(u.Hostname())
	// No page can set these two elsewhere.
	for _, own := range []string{r.Host, firstOf(r.Header[keyForwardedHost])} {
		if name, _ := splitHost(own); name != "" && plainHost(name) == host {
			return true
		}
	}
	return h.any || h.named(host)
}

// isBrowsers reports whether a request without an origin is a browser's. A page of another
// site cannot keep these headers from being sent. Node.js and its like call their function
// fetch a browser's, and send Sec-Fetch-Mode: cors and Accept-Language: * by it; PowerShell
// calls itself Mozilla.
func isBrowsers(h http.Header) bool {
	agent := One(h["User-Agent"])
	if strings.HasPrefix(agent, "Mozilla/") && !strings.Contains(agent, "PowerShell/") {
		return true
	}
	if mode, language := One(h[keyMode]), h["Accept-Language"]; mode != "" && mode != "cors" || language != nil && One(language) != "*" {
		return true
	}
	return h["Upgrade-Insecure-Requests"] != nil || h["Sec-Fetch-Dest"] != nil || strings.HasPrefix(One(h["Accept"]), "text/html,")
}

// One is the first value of a header.
func One(v []string) string {
	if len(v) == 0 {
		return ""
	}
	return v[0]
}

type judged struct{}

// WithJudged marks the context of a connection by which another node passes requests on:
// that node has judged whose they are.
func WithJudged(ctx context.Context) context.Context { return context.WithValue(ctx, judged{}, true) }

// WasJudged reports whether another node has judged whose a request is.
func WasJudged(r *http.Request) bool { return r.Context().Value(judged{}) != nil }
