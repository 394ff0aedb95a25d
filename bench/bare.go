package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/spf13/cobra"
)

// Sizes of the constant bodies beyond the data of the event, so that they weigh what a node's
// answers do.
const (
	bareEventOver = 44  // 300 bytes with the default size
	bareEntryOver = 560 // a page of 20 is about 16 KiB with the default size
)

// bareOptions says what the bare server answers.
type bareOptions struct {
	listen     string
	logSize    int64 // events that a forward reader finds
	eventBytes int   // one event as JSON
	entryBytes int   // one entry of a page
	untilEOF   bool  // ends when standard input does
}

func (o *bareOptions) validate() error {
	if o.logSize < 0 || o.eventBytes < 2 || o.eventBytes > maxEventSize || o.entryBytes < len(bareEntry("")) || o.entryBytes > maxEventSize {
		return fmt.Errorf("--log-size is negative, --event-bytes is below 2 or --entry-bytes below %d", len(bareEntry("")))
	}
	return nil
}

// bareServer answers the requests of all workloads with constant bodies and keeps nothing.
type bareServer struct {
	o       bareOptions
	event   []byte
	entries []byte // most entries and the end of a page, of which pages take the last
	most    int
}

const (
	bareTag = `"0;1"`
	// Pages of the bare server have at most so many bytes.
	maxBarePage = 64 << 20
)

func newBareServer(o bareOptions) *bareServer {
	entry := bareEntry(strings.Repeat("x", o.entryBytes-len(bareEntry(""))))
	most := max(1, min(maxPage, maxBarePage/(len(entry)+1)))
	return &bareServer{
		o: o, most: most, entries: []byte(strings.Repeat(entry+",", most-1) + entry + "]}"),
		event: payload(o.eventBytes, newRand(&options{seed: 1}, 0, 0)),
	}
}

func bareEntry(pad string) string {
	return `{"title":"0@bare","summary":"bare","isJson":true,"data":"` + pad + `"}`
}

func (b *bareServer) handler() http.Handler {
	r := httprouter.New()
	r.POST("/streams/:stream", b.append)
	r.GET("/streams/:stream", b.head)
	r.GET("/streams/:stream/:number", b.one)
	r.GET("/streams/:stream/:number/:direction/:count", b.page)
	return r
}

func (b *bareServer) append(w http.ResponseWriter, r *http.Request, p httprouter.Params) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header()["Location"] = []string{"http://" + r.Host + "/streams/" + p[0].Value + "/0"}
	w.Header()["Content-Length"] = []string{"0"}
	w.WriteHeader(http.StatusCreated)
}

// write answers with a body. The part before the last should be small, so that it goes out with as
// few system calls as the library needs for a body in one piece.
func (b *bareServer) write(w http.ResponseWriter, contentType, top string, rest []byte) {
	h := w.Header()
	h["Content-Type"] = []string{contentType}
	h["Content-Length"] = []string{strconv.Itoa(len(top) + len(rest))}
	// The client is gone when this fails; there is no one to report to.
	if _, err := io.WriteString(w, top); err == nil {
		_, _ = w.Write(rest)
	}
}

func (b *bareServer) head(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
	w.Header()["Etag"] = []string{bareTag}
	if r.Header.Get("If-None-Match") == bareTag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	b.feed(w, "", "", min(20, b.most))
}

func (b *bareServer) one(w http.ResponseWriter, _ *http.Request, _ httprouter.Params) {
	b.write(w, typeJSON, "", b.event)
}

func (b *bareServer) page(w http.ResponseWriter, _ *http.Request, p httprouter.Params) {
	count, err := strconv.Atoi(p[3].Value)
	if err != nil || count <= 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	count = min(count, b.most)
	if p[2].Value != "forward" {
		b.feed(w, "", "", count)
		return
	}
	// A position of the log is 32 hexadecimal digits, an event number decimal.
	text, format, base := p[1].Value, "%d", 10
	if len(text) == 32 {
		text, format, base = text[16:], "%032X", 16
	}
	from, err := strconv.ParseInt(text, base, 64)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if from >= b.o.logSize {
		b.feed(w, p[0].Value, "", 0)
		return
	}
	b.feed(w, p[0].Value, "/"+fmt.Sprintf(format, from+int64(count))+"/forward/"+p[3].Value, count)
}

// feed writes a page, with a link "previous" when there is one.
func (b *bareServer) feed(w http.ResponseWriter, stream, previous string, count int) {
	top := `{"title":"bare","headOfStream":` + strconv.FormatBool(previous == "") + `,"links":[`
	if previous != "" {
		top += `{"uri":"/streams/` + escapeStream(stream) + previous + `","relation":"previous"}`
	}
	// Of n entries, a comma after all but the last, and "]}".
	rest := max(2, count*(b.o.entryBytes+1)+1)
	b.write(w, typeAtom, top+`],"entries":[`, b.entries[len(b.entries)-rest:])
}

// serve listens, says where on out, and serves until ctx ends.
func (b *bareServer) serve(ctx context.Context, out io.Writer) error {
	listener, err := net.Listen("tcp", b.o.listen)
	if err != nil {
		return fmt.Errorf("bare server: %w", err)
	}
	server := &http.Server{Handler: b.handler(), ReadHeaderTimeout: time.Minute}
	closed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { closed <- server.Close() })
	if _, err := fmt.Fprintf(out, "%s%s\n", bareGreeting, listener.Addr()); err != nil {
		return errors.Join(fmt.Errorf("bare server: %w", err), listener.Close())
	}
	err = server.Serve(listener)
	if stop() { // The end was not asked for.
		return fmt.Errorf("bare server: %w", err)
	}
	return <-closed
}

// bareGreeting begins the line with the address. The parent process reads it: do not change one
// without the other.
const bareGreeting = "listening on http://"

func bareCommand() *cobra.Command {
	o := bareOptions{}
	d := defaultOptions()
	cmd := &cobra.Command{
		Use:   "bare",
		Short: "Run a bare HTTP server that answers the same requests with constant bodies",
		Long: `Run a server made of net/http and httprouter alone that answers the requests
of all workloads with constant bodies and stores nothing. What it reaches is the
ceiling of any node built on that library. It prints the address it listens on.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return &UsageError{err}
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			if o.untilEOF {
				// The parent ends us by closing the pipe. An interrupt from the terminal goes to
				// the whole process group and is the parent's to act on.
				signal.Ignore(os.Interrupt)
				ended := make(chan struct{})
				in := cmd.InOrStdin()
				go func() {
					defer close(ended)
					_, _ = io.Copy(io.Discard, in) // any end is the end
					cancel()
				}()
				err := newBareServer(o).serve(ctx, cmd.OutOrStdout())
				if ctx.Err() != nil {
					<-ended
				}
				return err
			}
			ctx, stop := untilInterrupt(cmd)
			defer stop()
			return newBareServer(o).serve(ctx, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "address to listen on; port 0 takes a free one")
	f.Int64Var(&o.logSize, "log-size", d.streamEvents, "number of events that a reader going forward finds")
	f.IntVar(&o.eventBytes, "event-bytes", d.size+bareEventOver, "length of the answer to a read of one event")
	f.IntVar(&o.entryBytes, "entry-bytes", d.size+bareEntryOver, "length of one entry of a page")
	f.BoolVar(&o.untilEOF, "until-eof", false, "end when standard input does")
	cobra.CheckErr(f.MarkHidden("until-eof"))
	return cmd
}
