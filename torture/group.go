package torture

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/event"
)

// groupSettings are those of one group as the wire spells them. Omitted settings have their
// defaults.
type groupSettings struct {
	ResolveLinks  bool  `json:"resolveLinktos"`
	StartFrom     int64 `json:"startFrom"`
	Timeout       int   `json:"messageTimeoutMilliseconds"`
	MaxRetries    int   `json:"maxRetryCount"`
	LiveBuffer    int   `json:"liveBufferSize,omitempty"`
	Buffer        int   `json:"bufferSize,omitempty"`
	Batch         int   `json:"readBatchSize,omitempty"`
	After         int   `json:"checkPointAfterMilliseconds,omitempty"`
	MinCheckpoint int   `json:"minCheckPointCount,omitempty"`
	MaxCheckpoint int   `json:"maxCheckPointCount,omitempty"`

	RetryDelay int     `json:"retryDelayMilliseconds,omitempty"`
	Backoff    float64 `json:"retryBackoff,omitempty"`
	AtLeast    int     `json:"checkpointAtLeastEveryMilliseconds,omitempty"`
	Strategy   string  `json:"namedConsumerStrategy,omitempty"`
}

// defaultMinCheckpoint is the progress that is worth a checkpoint unless a group says otherwise.
const defaultMinCheckpoint = 10

func (s *groupSettings) timeout() time.Duration { return time.Duration(s.Timeout) * time.Millisecond }

// delay is waited before the n-th retry of a message.
func (s *groupSettings) delay(n int) time.Duration {
	d := time.Duration(s.RetryDelay) * time.Millisecond
	return time.Duration(float64(d) * math.Pow(max(1, s.Backoff), float64(n-1)))
}

// longestAfter bounds the delays that consumers ask for.
const longestAfter = time.Second

// patience is how long a message may be out of sight: until its time is over, and then for a delay.
func (s *groupSettings) patience() time.Duration {
	return s.timeout() + max(s.delay(s.MaxRetries), longestAfter)
}

// uncheckpointed is how many finished events at the end of a stream need no checkpoint.
func (s *groupSettings) uncheckpointed() int64 {
	switch {
	case s.AtLeast > 0:
		return 0
	case s.MinCheckpoint == 0:
		return defaultMinCheckpoint - 1
	}
	return int64(s.MinCheckpoint) - 1
}

// group is one persistent subscription of the run.
type group struct {
	stream   string
	name     string
	settings groupSettings
}

// isOrdered reports whether a delayed message holds back all later ones.
func (g *group) isOrdered() bool {
	return g.settings.Strategy == client.Pinned && strings.HasSuffix(g.stream, queueStream)
}

func (g *group) String() string { return g.stream + "::" + g.name }

func (g *group) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// path is that of the group, to which commands are added.
func (g *group) path() string {
	return "/subscriptions/" + url.PathEscape(g.stream) + "/" + url.PathEscape(g.name)
}

// groupPrefix begins the names of the streams in which a server keeps groups of streams with a
// prefix.
func groupPrefix(prefix string) string { return "$persistentsubscription-" + prefix }

func (g *group) parkedStream() string     { return groupPrefix(g.String()) + "-parked" }
func (g *group) checkpointStream() string { return groupPrefix(g.String()) + "-checkpoint" }

// forwardStream gets parked messages of all groups.
func forwardStream(prefix string) string { return groupPrefix(prefix) + "forwarded" }

// put creates the group or, with POST, gives it the settings it has.
func (g *group) put(method string) (client.Request, error) {
	body, err := json.Marshal(&g.settings)
	return client.Request{Method: method, Path: g.path(), Header: map[string]string{"Content-Type": client.MediaJSON}, Body: body}, err
}

// The streams of the workload, after the prefix of the run.
const (
	queueStream = "queue"
	linksStream = "links"
	// nowhere is named by links that lead nowhere.
	nowhereStream = "nowhere"
)

// tormentedGroups are the groups of a run: both streams, links resolved and not, buffers that are
// full all the time and never, few retries, with delays and without, checkpoints early and late.
func tormentedGroups(prefix string) []*group {
	return []*group{
		{prefix + queueStream, "small", groupSettings{Timeout: 1000, MaxRetries: 2, LiveBuffer: 10, Buffer: 12, Batch: 10, After: 300, MinCheckpoint: 1, MaxCheckpoint: 20}},
		{prefix + queueStream, "large", groupSettings{Timeout: 2000, MaxRetries: 1, LiveBuffer: 2000, Buffer: 2000, Batch: 100}},
		{prefix + queueStream, "ordered", groupSettings{Timeout: 1500, MaxRetries: 3, RetryDelay: 200, Backoff: 2, AtLeast: 500, Strategy: client.Pinned}},
		{prefix + linksStream, "resolved", groupSettings{ResolveLinks: true, Timeout: 1500, MaxRetries: 2, LiveBuffer: 20, Buffer: 40, Batch: 20, MinCheckpoint: 1, RetryDelay: 300}},
		{prefix + linksStream, "bare", groupSettings{Timeout: 3000, MaxRetries: 0, MaxCheckpoint: 50}},
	}
}

// message is one entry of a feed of messages.
type message struct {
	id      event.ID // by which it is answered
	retries int
	title   string
	ack     string // path with query
	nack    string
}

// handout is what one reading of a group gave, the first message to process first.
type handout struct {
	messages []message
	ackAll   string
}

func (g *group) read(count int, embed string) client.Request {
	path := g.path() + "/" + strconv.Itoa(count)
	if embed != "" {
		path += "?embed=" + embed
	}
	return client.Request{Method: http.MethodGet, Path: path, Header: map[string]string{"Accept": client.MediaMessages}}
}

// linkPath returns the path and query of a link, empty when there is none.
func linkPath(links client.Links, relation string) (string, error) {
	text := links.Of(relation)
	if text == "" {
		return "", nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("the link %q is not a complete address (%v)", text, err)
	}
	return u.RequestURI(), nil
}

func parseHandout(body []byte) (*handout, error) {
	feed, err := client.ParsePage(body)
	if err != nil {
		return nil, err
	}
	h := &handout{messages: make([]message, len(feed.Entries))}
	if h.ackAll, err = linkPath(feed.Links, "ackAll"); err != nil {
		return nil, err
	}
	if h.ackAll == "" && len(feed.Entries) > 0 {
		return nil, fmt.Errorf("decode messages: %d of them, and no link ackAll", len(feed.Entries))
	}
	for i, e := range feed.Entries {
		m := message{retries: e.Retries, title: e.Title}
		if m.ack, err = linkPath(e.Links, "ack"); err != nil {
			return nil, err
		}
		if m.nack, err = linkPath(e.Links, "nack"); err != nil {
			return nil, err
		}
		if m.id, err = event.ParseID(m.ack[strings.LastIndexByte(m.ack, '/')+1:]); err != nil || m.nack == "" {
			return nil, fmt.Errorf("decode messages: %s has the links %q and %q", e.Title, m.ack, m.nack)
		}
		h.messages[len(feed.Entries)-1-i] = m // The newest comes first.
	}
	return h, nil
}

// groupInfo is the part of a group's description that tells whether it has finished.
type groupInfo struct {
	Stream      string  `json:"eventStreamId"`
	Status      string  `json:"status"`
	Checkpoint  *string `json:"lastCheckpointedEventPosition"`
	ReadBuffer  int64   `json:"readBufferCount"`
	RetryBuffer int64   `json:"retryBufferCount"`
	Outstanding int64   `json:"outstandingMessagesCount"`
}

// unfinished says what a group that no consumer reads from any more still has to do, nothing when
// it has finished. last is the number of the stream's last event, -1 for none.
func (i *groupInfo) unfinished(s *groupSettings, last int64) string {
	at := int64(-1)
	if i.Checkpoint != nil && *i.Checkpoint != "" {
		n, err := strconv.ParseInt(*i.Checkpoint, 10, 64)
		if err != nil {
			return err.Error()
		}
		at = n
	}
	switch {
	case i.Status != "Live":
		return fmt.Sprintf("its status is %q", i.Status)
	case i.Outstanding != 0 || i.RetryBuffer != 0 || i.ReadBuffer != 0:
		return fmt.Sprintf("%d messages are outstanding, %d wait for a retry, %d are read ahead", i.Outstanding, i.RetryBuffer, i.ReadBuffer)
	case at > last || last-at > s.uncheckpointed():
		return fmt.Sprintf("its checkpoint is %d, the last event %d", at, last)
	}
	return ""
}
