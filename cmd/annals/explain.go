package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/annalsdb/annals/client"
)

// probeTimeout bounds a question that only explains an error.
const probeTimeout = 3 * time.Second

// explainUnanswered says so when a node speaks the other one of HTTP and HTTPS.
func (c *nodeClient) explainUnanswered(err error) error {
	network, dialled := errors.AsType[*net.OpError](err)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, context.Canceled) || dialled && network.Op == "dial" {
		return err
	}
	u, e := url.Parse(c.address)
	if e != nil || u.Host == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	switch {
	case u.Scheme == "https" && speaksHTTP(ctx, u.Host):
		return fmt.Errorf("%s speaks plain HTTP, not HTTPS: write --node http://%s", u.Host, u.Host)
	case u.Scheme == "http" && speaksTLS(ctx, u.Host):
		return fmt.Errorf("%s speaks HTTPS, not plain HTTP: write --node https://%s, and --ca with the folder of its authority", u.Host, u.Host)
	}
	return err
}

// speaksHTTP says whether a server answers plain HTTP.
func speaksHTTP(ctx context.Context, host string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/ping", nil)
	if err != nil {
		return false
	}
	t := client.NewTransport(nil)
	defer t.CloseIdleConnections()
	a, err := t.RoundTrip(r)
	return err == nil && a.Body.Close() == nil
}

// speaksTLS says whether a server answers a handshake of TLS, with any certificate.
func speaksTLS(ctx context.Context, host string) bool {
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "443")
	}
	// Nothing is sent over this connection.
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := d.DialContext(ctx, "tcp", host)
	return err == nil && conn.Close() == nil
}

// explainUnauthorized says whether the password is wrong or a right is missing: nodes answer both
// alike, but every user may ask about itself.
func (c *nodeClient) explainUnauthorized(host string) string {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	a, err := c.Do(ctx, client.Request{
		Method: http.MethodGet, Path: "/users/$current", Header: map[string]string{"Accept": client.MediaJSON}, Stay: true,
		// The client does not have a password that was typed.
		Login: url.UserPassword(c.flags.user, c.flags.password),
	})
	switch {
	case err == nil && a.Status == http.StatusOK:
		return fmt.Sprintf("user %q may not do this on %s: ask as a user who has the right, with --user, or have an administrator give it", c.flags.user, host)
	case err == nil && a.Status == http.StatusUnauthorized:
		return fmt.Sprintf("%s does not accept user %q with this password: correct --user, and %s or --password", host, c.flags.user, passwordVariable)
	}
	return fmt.Sprintf("%s does not accept user %q with this password (%s or --password), or the user may not do this", host, c.flags.user, passwordVariable)
}
