package lab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/lab"
)

// Ports of the program that tests run on hosts.
const (
	commandPort = "7000" // TCP: a command in a line, its answer in a line
	sinkPort    = "7001" // TCP: reads everything, answers with the number of bytes
	datagrams   = "7002" // UDP: remembers what arrives
)

// play is what this binary does as a program on a host.
func play(role string) int {
	var err error
	switch role {
	case "server":
		err = serve(os.Getenv("LAB_TEST_ADDR"))
	case "fail":
		fmt.Println("to standard output")
		fmt.Fprintln(os.Stderr, "to standard error")
		return 7
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		err = serve(os.Getenv("LAB_TEST_ADDR"))
	case "family":
		err = raiseFamily()
	case "abandon":
		err = abandon()
	default:
		err = fmt.Errorf("there is no role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// serve listens on all ports until a signal comes.
func serve(addr string) error {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	if os.Getenv(roleVariable) == "stubborn" {
		signal.Reset(syscall.SIGTERM)
		signal.Ignore(syscall.SIGTERM)
	}
	commands, err := net.Listen("tcp4", net.JoinHostPort(addr, commandPort))
	if err != nil {
		return err
	}
	sink, err := net.Listen("tcp4", net.JoinHostPort(addr, sinkPort))
	if err != nil {
		return err
	}
	packets, err := net.ListenPacket("udp4", net.JoinHostPort(addr, datagrams))
	if err != nil {
		return err
	}
	r := &received{}
	go r.collect(packets)
	go accept(sink, drain)
	go accept(commands, func(c net.Conn) { obey(c, packets, r) })
	fmt.Println("ready")
	<-terminated
	fmt.Println("terminated")
	return nil
}

func accept(l net.Listener, f func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go f(c)
	}
}

// received are the datagrams that arrived.
type received struct {
	mu   sync.Mutex
	text []string
}

func (r *received) collect(c net.PacketConn) {
	b := make([]byte, 1<<16)
	for {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.text = append(r.text, string(b[:n]))
		r.mu.Unlock()
	}
}

func (r *received) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.text, " ")
}

func drain(c net.Conn) {
	defer c.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 1<<20))
	if err == nil {
		fmt.Fprintln(c, n)
	}
}

// obey answers commands:
//
//	ask HOST LINE     the answer of another host to a line
//	try HOST LINE     the same, but an error if it does not come soon
//	send HOST A B     datagrams numbered A to B to another host
//	received          the datagrams that arrived
//	push HOST N       how long it took in nanoseconds to send N bytes to the sink of another host
//	anything else     the same
func obey(c net.Conn, packets net.PacketConn, r *received) {
	defer c.Close()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		answer, err := execute(strings.Fields(lines.Text()), packets, r)
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Fprintln(c, answer)
	}
}

func execute(words []string, packets net.PacketConn, r *received) (string, error) {
	switch words[0] {
	case "ask":
		return askHost(words[1], strings.Join(words[2:], " "), patience)
	case "try":
		return askHost(words[1], strings.Join(words[2:], " "), time.Second)
	case "send":
		to, err := net.ResolveUDPAddr("udp4", net.JoinHostPort(words[1], datagrams))
		if err != nil {
			return "", err
		}
		first, _ := strconv.Atoi(words[2])
		last, _ := strconv.Atoi(words[3])
		for i := first; i <= last; i++ {
			if _, err := packets.WriteTo([]byte(strconv.Itoa(i)), to); err != nil {
				return "", err
			}
		}
		return "sent", nil
	case "received":
		return r.String(), nil
	case "push":
		n, _ := strconv.ParseInt(words[2], 10, 64)
		took, err := push(words[1], n)
		return strconv.FormatInt(int64(took), 10), err
	}
	return strings.Join(words, " "), nil
}

// askHost sends a line to a host and returns the answer.
func askHost(host, line string, limit time.Duration) (string, error) {
	c, err := dial(host, limit)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.ask(line, limit)
}

// push sends bytes to the sink of a host and waits until all have arrived.
func push(host string, n int64) (time.Duration, error) {
	c, err := net.Dial("tcp4", net.JoinHostPort(host, sinkPort))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	start := time.Now()
	buffer := make([]byte, 1<<20)
	for left := n; left > 0; {
		k, err := c.Write(buffer[:min(left, int64(len(buffer)))])
		if err != nil {
			return 0, err
		}
		left -= int64(k)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	var arrived int64
	if _, err := fmt.Fscan(c, &arrived); err != nil || arrived != n {
		return 0, fmt.Errorf("%d of %d bytes arrived: %w", arrived, n, err)
	}
	return time.Since(start), nil
}

// raiseFamily starts a child that never ends, and never ends either.
func raiseFamily() error {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println("child", child.Process.Pid)
	return child.Wait()
}

// abandon makes a lab, says what to look for, and dies without closing it.
func abandon() error {
	l, err := lab.New(lab.Options{Hosts: 1})
	if err != nil {
		return err
	}
	if err := l.Host(0).LimitDisk(1 << 20); err != nil {
		return err
	}
	p, err := l.Host(0).Start(context.Background(), lab.Command{Path: "sleep", Args: []string{"1000"}})
	if err != nil {
		return err
	}
	fmt.Println("abandoned", p.Pid(), l.Dir())
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// connection is a client's to the command port.
type connection struct {
	net.Conn
	lines *bufio.Reader
}

func dial(host string, limit time.Duration) (*connection, error) {
	c, err := net.DialTimeout("tcp4", net.JoinHostPort(host, commandPort), limit)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: c, lines: bufio.NewReader(c)}, nil
}

// ask sends a line and returns the answer.
func (c *connection) ask(line string, limit time.Duration) (string, error) {
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	return c.answer(limit)
}

func (c *connection) answer(limit time.Duration) (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	line, err := c.lines.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	if why, ok := strings.CutPrefix(line, "error: "); ok {
		return "", errors.New(why)
	}
	return line, nil
}

// patience bounds waits for what must happen, however slow the machine is.
const patience = 3 * time.Minute

// newLab makes a lab that can change links, or skips the test.
func newLab(t testing.TB, o lab.Options) *lab.Lab {
	t.Helper()
	l := openLab(t, o)
	if err := l.NoLinks(); err != nil {
		t.Skipf("needs root and /dev/net/tun: %v", err)
	}
	return l
}

// openLab makes a lab of any kind.
func openLab(t testing.TB, o lab.Options) *lab.Lab {
	t.Helper()
	l := check.Value(lab.New(o)).Must(t)
	t.Cleanup(func() { check.NoError(t, l.Close()) })
	return l
}

// role is the command that makes this binary a program on a host.
func role(name string, h *lab.Host) lab.Command {
	return lab.Command{Path: "/proc/self/exe", Env: []string{
		roleVariable + "=" + name,
		"LAB_TEST_ADDR=" + h.Addr(),
		// The race detector waits for a second at the end of a program otherwise.
		"GORACE=atexit_sleep_ms=0",
	}}
}

// launch starts a program on a host and waits for a line that begins with a text.
func launch(t testing.TB, h *lab.Host, name, text string) *lab.Process {
	t.Helper()
	p := check.Value(h.Start(context.Background(), role(name, h))).Must(t)
	eventually(t, "the program says "+text, func() bool { return strings.HasPrefix(p.Output(), text) })
	return p
}

// serveAll starts the server on all hosts and returns the client's connections to them.
func serveAll(t testing.TB, l *lab.Lab) []*connection {
	t.Helper()
	var all []*connection
	for _, h := range l.Hosts() {
		launch(t, h, "server", "ready")
		all = append(all, connect(t, h))
	}
	return all
}

func connect(t testing.TB, h *lab.Host) *connection {
	t.Helper()
	c := check.Value(dial(h.Addr(), patience)).Must(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// must asks and demands an answer.
func (c *connection) must(t testing.TB, line string, words ...any) string {
	t.Helper()
	answer, err := c.ask(fmt.Sprintf(line, words...), patience)
	if err != nil {
		t.Fatalf("%s: %v", fmt.Sprintf(line, words...), err)
	}
	return answer
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// do fails the test on the first error.
func do(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		check.Must(t, err)
	}
}

// isTimeout says that nothing came in time.
func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
