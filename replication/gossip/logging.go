package gossip

import (
	"bytes"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/throttle"
)

// A library's line that holds one of these texts tells nothing new: a dead node is
// logged once when it is found dead, a refused one by this package, and the rest
// are the ordinary course of things. They go with the details.
var noise = []string{
	"Failed fallback TCP ping",
	"Push/Pull with",
	"Failed push/pull merge",
	"Failed to send",
	"Failed to forward ack",
	"failed to receive",
	"Failed to receive",
	"Failed to read remote state",
	"Failed to push local state",
	"ignoring alive message",
	"Got ping for unexpected node",
	"Refuting",
	"Shutdown without a Leave",
	"Bad state when leave",
	// Packets go over TCP as well: the node, or this one, was slow.
	"over TCP but UDP probes failed",
	// It knows nothing of the protection that this package's transport gives.
	"Binding to public address without encryption",
}

// libraryLog is the io.Writer that serf and memberlist log to. Each write is one
// line: a time, a level in brackets, a text.
type libraryLog struct {
	to        hclog.Logger
	complaint *throttle.Lines[string]
}

func (l *libraryLog) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	level := "DEBUG"
	if open := strings.IndexByte(text, '['); open >= 0 {
		if end := strings.IndexByte(text[open:], ']'); end > 0 {
			level, text = text[open+1:open+end], strings.TrimSpace(text[open+end+1:])
		}
	}
	quiet := slices.ContainsFunc(noise, func(n string) bool { return strings.Contains(text, n) })
	switch {
	case !quiet && strings.HasPrefix(level, "ERR"), !quiet && level == "WARN":
		// Neither library can break anything of the database.
		if _, due := l.complaint.Due(text); due {
			l.to.Warn(text)
		}
	case level == "DEBUG":
		l.to.Trace(text)
	default:
		l.to.Debug(text)
	}
	return len(line), nil
}
