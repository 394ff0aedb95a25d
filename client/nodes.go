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
	"sync"
)

// known are the nodes that a client knows, and all that After made of it.
type known struct {
	mu        sync.Mutex
	addresses []string
	at        int // the node that is asked first
}

// next is the node that is asked next.
func (k *known) next() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.addresses[k.at]
}

// prefer makes a node the one that is asked next.
func (k *known) prefer(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at = slices.Index(k.addresses, node); k.at < 0 {
		k.addresses = append(k.addresses, node)
		k.at = len(k.addresses) - 1
	}
}

// leave goes to the next node after one that did not serve, and returns how many there are.
func (k *known) leave(node string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.addresses[k.at] == node {
		k.at = (k.at + 1) % len(k.addresses)
	}
	return len(k.addresses)
}

// learn adds members that live.
func (k *known) learn(members []Member) {
	k.mu.Lock()
	defer k.mu.Unlock()
	scheme, _, _ := strings.Cut(k.addresses[k.at], "://")
	for i := range members {
		if address := scheme + "://" + members[i].Address(); members[i].Alive && !slices.Contains(k.addresses, address) {
			k.addresses = append(k.addresses, address)
		}
	}
}

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
	c.sender.nodes.learn(members)
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
