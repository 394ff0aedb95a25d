package grpcapi_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
)

// TestUnreadableMessages: what cannot be read is the fault of who sent it, for which no client
// looks for another node.
func TestUnreadableMessages(t *testing.T) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	defer transport.CloseIdleConnections()
	for _, method := range []string{
		"streams.Streams/Read", "streams.Streams/Append", "streams.Streams/BatchAppend", "streams.Streams/Delete",
		"persistent_subscriptions.PersistentSubscriptions/Read", "server_features.ServerFeatures/GetSupportedMethods",
	} {
		for what, body := range map[string]string{
			"garbage":            "\x00\x00\x00\x00\x03\xff\xff\x01",
			"half a frame":       "\x00\x00\x00\x00\x03\xff",
			"garbage compressed": "\x01\x00\x00\x00\x03abc",
		} {
			r, err := http.NewRequestWithContext(as(t, ""), http.MethodPost, address+"/event_store.client."+method, bytes.NewReader([]byte(body)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/grpc")
			r.Header.Set("Grpc-Encoding", "gzip")
			answer, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			if got := answer.Trailer.Get("Grpc-Status") + answer.Header.Get("Grpc-Status"); got != "3" || err != nil {
				t.Errorf("%s, %s: status %q, %v; %s", method, what, got, err, answer.Trailer.Get("Grpc-Message"))
			}
		}
	}
}
