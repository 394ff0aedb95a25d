package address

import (
	"net/http"
	"slices"
	"strings"
)

const keyVary = "Vary" // tells caches on which headers of the request an answer depends

var (
	varyOrigin    = []string{KeyOrigin}
	varyForwarded = ForwardedKeys[:]
)

// Origin is what one answer says of the node's own address. Every header of the request that has
// shaped what it said stands in vary until Vary has told caches, so that no client gets what
// another one's headers made of the answer. The address is made when it is first asked for, once.
type Origin struct {
	names *Names
	r     *http.Request

	uri     []byte // base URI and forwarded prefix
	baseLen int    // how much of uri is the base URI
	vary    []string
}

// Begin is called once for each request, before all else. It keeps nothing but memory of the
// request before.
func (o *Origin) Begin(n *Names, r *http.Request) {
	*o = Origin{names: n, r: r, uri: o.uri[:0]}
}

// Release lets go of the request.
func (o *Origin) Release() { o.Begin(nil, nil) }

// URI returns the base URI with a proxy's prefix: what every address in an
// answer begins with.
func (o *Origin) URI() []byte {
	if len(o.uri) == 0 {
		o.uri = o.names.Base(o.uri, o.r)
		o.baseLen = len(o.uri)
		o.uri = AppendPrefix(o.uri, o.r)
		if IsForwarded(o.r.Header) {
			o.vary = append(o.vary, varyForwarded...)
		}
	}
	return o.uri
}

// Prefix returns a proxy's prefix alone, for addresses without a host.
func (o *Origin) Prefix() []byte {
	uri := o.URI()
	return uri[o.baseLen:]
}

// Own returns the value of the request's header Origin if it names a page of this node; else nil.
func (o *Origin) Own() []string {
	origin := o.r.Header[KeyOrigin]
	if len(origin) != 1 || !o.names.IsOwnOrigin(origin[0], o.r) {
		return nil
	}
	o.vary = append(o.vary, varyOrigin...)
	return origin
}

// Vary adds to what the header of the answer tells caches. It does so once.
func (o *Origin) Vary(h http.Header) {
	if o.vary == nil {
		return
	}
	h[keyVary] = []string{strings.Join(append(slices.Clone(h[keyVary]), o.vary...), ", ")}
	o.vary = nil
}
