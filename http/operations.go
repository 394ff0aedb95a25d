package httpapi

import (
	"net/http"
	"time"
)

// Operations on this node alone are done here, on a leader and a follower alike.

// shutdownNode stops the node. The answer is sent before: nobody could send it later.
func shutdownNode(x *exchange) error {
	h := x.w.Header()
	h["Connection"] = []string{"close"}
	h[keyContentLength] = []string{"0"} // Or flushing would begin a body of unknown length.
	if err := sendAccepted(x); err != nil {
		return err
	}
	// A writer that cannot flush sends when this returns; the node waits for that too.
	_ = http.NewResponseController(x.w).Flush()
	x.s.log.Info("shutdown asked for", "login", printable(x.who.Login), "remote", x.r.RemoteAddr)
	x.s.opts.Operations.Shutdown()
	return nil
}

// reloadConfig reads the configuration again. What comes of it is in the log.
func reloadConfig(x *exchange) error {
	x.s.opts.Operations.Reload()
	return sendAccepted(x)
}

// mergeIndexes merges the tables of the index.
func mergeIndexes(x *exchange) error {
	id, err := x.s.opts.Operations.MergeIndexes()
	if err != nil {
		return err
	}
	return sendFields(x, "MergeIndexesResultDto", []field{textField("mergeIndexesId", "MergeIndexesId", id.String())})
}

// serveLogin tells the caller who it is, by which interfaces check credentials. It is
// JSON, whichever types are accepted: not all clients that sign in so ask for it.
func serveLogin(x *exchange) error {
	b := append(x.out[:0], "{\n  \"data\": {\n"...)
	b = appendMembers(b, "    ", []field{
		{json: "loginName", value: x.who.Login},
		{json: "fullName", value: x.who.Login},
		{json: "groups", value: string(appendStrings(nil, "    ", x.who.Groups)), bare: true},
		{json: "dateLastUpdated", value: time.Now().UTC().Format(tickTime)},
	})
	x.out = append(b, "\n  },\n  \"success\": true,\n  \"error\": \"Success\"\n}"...)
	x.w.Header()[keyCacheControl] = cacheNever
	x.media = typeJSON
	x.ok()
	return nil
}
