package h2_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"

	"github.com/annalsdb/annals/internal/h2"
)

// TestConformance: what a client does that RFC 9113 forbids has the outcome that it demands, and
// what it allows has none. Stream 1 is begun before each.
func TestConformance(t *testing.T) {
	const (
		fine        = ""
		protocol    = "GOAWAY PROTOCOL_ERROR closed"
		frameSize   = "GOAWAY FRAME_SIZE_ERROR closed"
		flowControl = "GOAWAY FLOW_CONTROL_ERROR closed"
		compression = "GOAWAY COMPRESSION_ERROR closed"
		isClosed    = "RST 1 STREAM_CLOSED"
	)
	ended := func(do func(*client)) func(*client) {
		return func(c *client) {
			c.data(1, true, 0)
			do(c)
		}
	}
	reset := func(do func(*client)) func(*client) {
		return func(c *client) {
			c.frame(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08")
			do(c)
		}
	}
	raw := func(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) func(*client) {
		return func(c *client) { c.frame(kind, flags, stream, payload) }
	}
	header := func(stream uint32, end bool, pairs ...string) func(*client) {
		return func(c *client) { c.header(stream, end, fields(pairs...)...) }
	}
	setting := func(id http2.SettingID, value uint32) func(*client) {
		return func(c *client) { c.settings(http2.Setting{ID: id, Val: value}) }
	}
	window := func(stream, more uint32) func(*client) { return func(c *client) { c.window(stream, more) } }
	data := func(stream uint32, size int) func(*client) {
		return func(c *client) { c.data(stream, false, size) }
	}
	all := func(do ...func(*client)) func(*client) {
		return func(c *client) {
			for _, one := range do {
				one(c)
			}
		}
	}
	const most = 1<<31 - 1
	for _, test := range []struct {
		name, want string
		do         func(*client)
	}{
		{"4.1 an unknown frame", fine, raw(0x99, 0xff, 1, "what")},
		{"4.1 unknown flags", fine, raw(http2.FramePing, 0xfe, 0, "unknownf")},
		{"4.2 a large frame", frameSize, data(1, 16<<10+1)},
		{"4.2 a large frame of settings", frameSize, raw(http2.FrameSettings, 0, 0, strings.Repeat("\x00\x99\x00\x00\x00\x00", 3000))},
		{"4.3 a header that cannot be decoded", compression, raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 3, "\xff\xff\xff\xff")},
		{"4.3 another frame within a header", protocol, all(raw(http2.FrameHeaders, 0, 3, ""), data(1, 1))},
		{"4.3 another header within a header", protocol, all(raw(http2.FrameHeaders, 0, 3, ""), raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 5, ""))},
		{"5.1 data of an idle stream", protocol, data(3, 1)},
		{"5.1 a reset of an idle stream", protocol, raw(http2.FrameRSTStream, 0, 3, "\x00\x00\x00\x08")},
		{"5.1 a window of an idle stream", protocol, window(3, 1)},
		{"5.1 data of a stream of ours", protocol, all(header(3, false, ":path", "/kept"), data(2, 1))},
		{"5.1 a reset of a stream of ours", protocol, all(header(3, false, ":path", "/kept"), raw(http2.FrameRSTStream, 0, 2, "\x00\x00\x00\x08"))},
		{"5.1 a window of a stream of ours", protocol, all(header(3, false, ":path", "/kept"), window(2, 1))},
		{"5.1 data after the end", isClosed, ended(data(1, 1))},
		{"5.1 a header after the end", isClosed, ended(header(1, true, "a", "b"))},
		{"5.1 a window after the end", fine, ended(window(1, 1))},
		{"5.1 a reset after the end", fine, ended(raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08"))},
		{"5.1 data after a reset", fine, reset(data(1, 1))},
		{"5.1 trailers after a reset", fine, reset(header(1, true, "a", "b"))},
		{"5.1 a window after a reset", fine, reset(window(1, 1))},
		{"5.1 a continuation after the end", protocol, ended(raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, ""))},
		{"5.1.1 a stream of ours", protocol, header(2, true, ":path", "/kept")},
		{"5.1.1 a stream that was passed over", protocol, all(header(5, true, ":path", "/kept"), header(3, true, ":path", "/kept"))},
		{"5.1.1 a stream again", protocol, reset(header(1, true, ":path", "/kept"))},
		{"5.1.2 one stream too many", "RST 9 REFUSED_STREAM", all(header(3, false, ":path", "/kept"), header(5, false, ":path", "/kept"),
			header(7, false, ":path", "/kept"), header(9, false, ":path", "/kept"))},
		{"5.3 a priority", fine, raw(http2.FramePriority, 0, 1, "\x00\x00\x00\x03\x10")},
		{"5.3 a priority of an idle stream", fine, raw(http2.FramePriority, 0, 9, "\x00\x00\x00\x01\x10")},
		{"5.5 an unknown frame within a header", protocol, all(raw(http2.FrameHeaders, 0, 3, ""), raw(0x99, 0, 0, ""))},
		{"6.1 data of no stream", protocol, data(0, 1)},
		{"6.1 padding", fine, raw(http2.FrameData, http2.FlagDataPadded, 1, "\x03abc\x00\x00\x00")},
		{"6.1 more padding than payload", protocol, raw(http2.FrameData, http2.FlagDataPadded, 1, "\x09abc")},
		{"6.2 a header of no stream", protocol, header(0, true, ":path", "/kept")},
		{"6.3 a priority of no stream", protocol, raw(http2.FramePriority, 0, 0, "\x00\x00\x00\x03\x10")},
		{"6.3 a short priority", frameSize, raw(http2.FramePriority, 0, 1, "\x00")},
		{"6.4 a reset of no stream", protocol, raw(http2.FrameRSTStream, 0, 0, "\x00\x00\x00\x08")},
		{"6.4 a short reset", frameSize, raw(http2.FrameRSTStream, 0, 1, "\x00")},
		{"6.5 a long acknowledgment", frameSize, raw(http2.FrameSettings, http2.FlagSettingsAck, 0, "\x00\x99\x00\x00\x00\x00")},
		{"6.5 settings of a stream", protocol, raw(http2.FrameSettings, 0, 1, "")},
		{"6.5 short settings", frameSize, raw(http2.FrameSettings, 0, 0, "\x00\x99\x00")},
		{"6.5.2 a wrong push", protocol, setting(http2.SettingEnablePush, 2)},
		{"6.5.2 a large window", flowControl, setting(http2.SettingInitialWindowSize, most+1)},
		{"6.5.2 a small frame", protocol, setting(http2.SettingMaxFrameSize, 16<<10-1)},
		{"6.5.2 a frame too large", protocol, setting(http2.SettingMaxFrameSize, 1<<24)},
		{"6.5.2 an unknown setting", fine, setting(0x99, most)},
		{"6.6 a promise", protocol, raw(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, "\x00\x00\x00\x02")},
		{"6.7 an acknowledgment of no ping", fine, raw(http2.FramePing, http2.FlagPingAck, 0, "whatever")},
		{"6.7 a ping of a stream", protocol, raw(http2.FramePing, 0, 1, "whatever")},
		{"6.7 a short ping", frameSize, raw(http2.FramePing, 0, 0, "what")},
		{"6.8 the end of a stream", protocol, raw(http2.FrameGoAway, 0, 1, "\x00\x00\x00\x00\x00\x00\x00\x00")},
		{"6.8 a stream after the end", "RST 3 REFUSED_STREAM", all(raw(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00"), header(3, true, ":path", "/kept"))},
		{"6.9 no more window", "RST 1 PROTOCOL_ERROR", window(1, 0)},
		{"6.9 no more window of the connection", protocol, window(0, 0)},
		{"6.9 a short window", frameSize, raw(http2.FrameWindowUpdate, 0, 1, "\x00")},
		{"6.9.1 a large window", "RST 1 FLOW_CONTROL_ERROR", window(1, most)},
		{"6.9.1 a large window of the connection", flowControl, window(0, most)},
		{"6.9.1 a stream that is sent too much", "RST 1 FLOW_CONTROL_ERROR", all(data(1, streamWindow/2), data(1, streamWindow/2), data(1, 1))},
		{"6.9.2 a window that settings make too large", flowControl, all(window(1, most-1<<16), setting(http2.SettingInitialWindowSize, 1<<20))},
		{"6.9.2 windows that shrink and grow", fine, all(setting(http2.SettingInitialWindowSize, 0), setting(http2.SettingInitialWindowSize, most))},
		{"6.10 a continuation of nothing", protocol, raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "")},
		{"6.10 a continuation of another stream", protocol, all(raw(http2.FrameHeaders, 0, 3, ""), raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, ""))},
		{"8.1 trailers that are not the end", "RST 1 PROTOCOL_ERROR", header(1, false, "a", "b")},
		{"8.1 trailers", fine, header(1, true, "a", "b")},
		{"8.2 an upper-case name", "RST 3 PROTOCOL_ERROR", header(3, true, ":path", "/kept", "A", "b")},
		{"8.2 a wrong value", "RST 3 PROTOCOL_ERROR", header(3, true, ":path", "/kept", "a", "b\n")},
		{"8.3 an unknown pseudo-field", "RST 3 PROTOCOL_ERROR", header(3, true, ":path", "/kept", ":what", "b")},
		{"8.3 a pseudo-field twice", "RST 3 PROTOCOL_ERROR", header(3, true, ":path", "/kept", ":path", "/kept")},
		{"8.3 a pseudo-field of an answer", "RST 3 PROTOCOL_ERROR", header(3, true, ":path", "/kept", ":status", "200")},
		{"8.3 a pseudo-field that comes late", "RST 3 PROTOCOL_ERROR", header(3, true, "a", "b", ":path", "/kept")},
		{"8.3 a pseudo-field in trailers", "RST 1 PROTOCOL_ERROR", header(1, true, ":path", "/kept")},
		{"10.5.1 a large header", "RST 3 FRAME_SIZE_ERROR", header(3, true, ":path", "/kept", "a", strings.Repeat("~", maxHeader))},
		{"10.5.1 a much larger header", compression, header(3, true, ":path", "/kept", "a", strings.Repeat("~", 100<<10))},
	} {
		t.Run(test.name, func(t *testing.T) {
			run(t, h2.Options{}, func(c *client) {
				c.begin(1)
				test.do(c)
				if got := c.outcome(); got != test.want {
					t.Errorf("%q, not %q", got, test.want)
				}
			})
		})
	}
}

// TestPreface: a client that begins in another way is not served (RFC 9113, 3.4).
func TestPreface(t *testing.T) {
	for _, test := range []struct {
		name, preface, want string
		then                func(*client)
	}{
		{"settings", http2.ClientPreface, "", func(c *client) { c.settings() }},
		{"HTTP/1.1", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "closed", func(*client) {}},
		{"a ping first", http2.ClientPreface, "GOAWAY PROTOCOL_ERROR closed", func(*client) {}},
		{"a request first", http2.ClientPreface, "GOAWAY PROTOCOL_ERROR closed", func(c *client) { c.header(1, true, fields(":path", "/echo")...) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := connect(t, h2.Options{})
				c.send(func() error {
					_, err := io.WriteString(c.Conn, test.preface)
					return err
				})
				test.then(c)
				if got := c.outcome(); got != test.want {
					t.Errorf("%q, not %q", got, test.want)
				}
				c.close()
			})
		})
	}
}
