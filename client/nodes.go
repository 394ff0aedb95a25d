package client

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Member is a node of a cluster as another one sees it.
type Member struct {
	ID    string `json:"instanceId"` // of the node, another one after it lost its disk
	State string `json:"state"`      // Leader, Follower, ...
	Term  int64  `json:"epochNumber"`
	Alive bool   `json:"isAlive"`
	Host  string `json:"httpEndPointIp"`
	Port  int    `json:"httpEndPointPort"`
}

// Address is host and port for clients.
func (m *Member) Address() string { return net.JoinHostPort(m.Host, strconv.Itoa(m.Port)) }

// Members returns the nodes of the cluster as one of them sees it.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	var view struct {
		Members []Member `json:"members"`
	}
	if err := c.Call(ctx, http.MethodGet, "/gossip", nil, &view); err != nil {
		return nil, err
	}
	if len(view.Members) == 0 {
		return nil, errors.New(c.Node() + " does not say which nodes its cluster has")
	}
	return view.Members, nil
}

// Discover asks for the members of the cluster. From then on the client asks them as well as the
// nodes of the options.
func (c *Client) Discover(ctx context.Context) error {
	members, err := c.Members(ctx)
	if err != nil {
		return fmt.Errorf("discover the nodes of the cluster: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	scheme, _, _ := strings.Cut(c.nodes[c.at], "://")
	for i := range members {
		if address := scheme + "://" + members[i].Address(); members[i].Alive && !slices.Contains(c.nodes, address) {
			c.nodes = append(c.nodes, address)
		}
	}
	return nil
}

// certificateFiles are the endings by which nodes find certificates of authorities.
var certificateFiles = []string{".crt", ".cert", ".cer", ".pem", ".der"}

// Authorities reads the certificates of the authorities to trust from a file, or from all
// files of a folder that end as certificates do. They are PEM or DER.
func Authorities(path string) (*x509.CertPool, error) {
	names := []string{path}
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		files, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("read certificates of authorities: %w", err)
		}
		names = nil
		for _, file := range files {
			if !file.IsDir() && slices.Contains(certificateFiles, strings.ToLower(filepath.Ext(file.Name()))) {
				names = append(names, filepath.Join(path, file.Name()))
			}
		}
	}
	pool := x509.NewCertPool()
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read certificates of authorities: %w", err)
		}
		if !pool.AppendCertsFromPEM(data) {
			certificate, err := x509.ParseCertificate(data)
			if err != nil {
				return nil, fmt.Errorf("%s holds no certificate: %w", name, err)
			}
			pool.AddCert(certificate)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s holds no certificate of an authority", path)
	}
	return pool, nil
}
