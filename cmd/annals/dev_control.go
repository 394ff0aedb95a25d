package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

// devPlace are the ports of a node, which it has again when it starts again. A node that is alone
// has none for other nodes.
type devPlace struct{ node, replication int }

func placeOf(address, peer string) (at devPlace, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return at, err
	}
	if peer != "" {
		between, err := netip.ParseAddrPort(peer)
		if err != nil {
			return at, err
		}
		at.replication = int(between.Port())
	}
	at.node, err = strconv.Atoi(u.Port())
	return at, err
}

// control does what the lines of standard input say, until ctx or they end.
func (c *devCluster) control(ctx context.Context, stdin io.Reader, stdout io.Writer) {
	// In the background of a shell, reading a terminal would stop the process.
	signal.Ignore(syscall.SIGTTIN)
	lines := make(chan string)
	go func() { // A read of a terminal ends only with the process.
		defer close(lines)
		s := bufio.NewScanner(stdin)
		for s.Scan() {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
		if err := s.Err(); err != nil && ctx.Err() == nil {
			complain(c.stderr, fmt.Errorf("no more lines are obeyed: %w", err))
		}
	}()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return
			}
			if err := c.obey(ctx, line, stdout); err != nil && ctx.Err() == nil {
				complain(c.stderr, err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// obey does what one line says.
func (c *devCluster) obey(ctx context.Context, line string, stdout io.Writer) error {
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil
	}
	if len(words) == 1 && words[0] == "list" {
		return c.list(stdout)
	}
	var i int
	if len(words) == 2 {
		i, _ = strconv.Atoi(strings.TrimPrefix(words[1], "node")) // 0 is not a node.
	}
	if i < 1 || i > len(c.nodes) || words[0] != "stop" && words[0] != "start" {
		return fmt.Errorf("%q is not a command: write list, stop N or start N, N from 1 to %d", line, len(c.nodes))
	}
	i--
	n := c.nodes[i]
	switch {
	case words[0] == "start" && n != nil:
		return fmt.Errorf("node%d runs already", i+1)
	case words[0] == "start":
		if err := c.open(ctx, i); err != nil {
			return err
		}
		_, err := fmt.Fprintf(stdout, "node%d starts\n", i+1)
		return err
	case n == nil:
		return fmt.Errorf("node%d is stopped already", i+1)
	case c.o.node.MemDb:
		return fmt.Errorf("node%d would lose its data: run annals dev without --mem-db", i+1)
	}
	c.setSeed(i, "")
	if err := n.Close(); err != nil {
		return fmt.Errorf("stop node%d: %w", i+1, err)
	}
	c.nodes[i] = nil
	_, err := fmt.Fprintf(stdout, "node%d is stopped\n", i+1)
	return err
}

// list prints where each node serves, and its state.
func (c *devCluster) list(w io.Writer) error {
	for i, n := range c.nodes {
		line := fmt.Sprintf("node%d is stopped\n", i+1)
		if n != nil {
			line = fmt.Sprintf("node%d serves %s  %s\n", i+1, n.URL(), n.State())
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}
