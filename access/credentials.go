package access

import (
	"bytes"
	"encoding/base64"
	"strings"

	"github.com/annalsdb/annals/event"
)

const (
	basicScheme = "Basic"
	blanks      = " \t"
)

// basicToken returns what follows the scheme of a Basic header, and whether it is one.
func basicToken(header string) (token string, ok bool) {
	header = strings.Trim(header, blanks)
	if len(header) < len(basicScheme) || !strings.EqualFold(header[:len(basicScheme)], basicScheme) {
		return "", false
	}
	token = header[len(basicScheme):]
	if token != "" && token[0] != ' ' && token[0] != '\t' {
		return "", false // Another scheme whose name begins alike.
	}
	return strings.Trim(token, blanks), true
}

// decodeCredentials decodes a token into dst, or into new memory when dst is too small. It finds
// the colon after the login.
func decodeCredentials(dst []byte, token string) (login, whole []byte, ok bool) {
	if need := base64.StdEncoding.DecodedLen(len(token)); need > len(dst) {
		dst = make([]byte, need)
	}
	n, err := base64.StdEncoding.Decode(dst, []byte(token))
	if err != nil {
		return nil, nil, false
	}
	whole = dst[:n]
	colon := bytes.IndexByte(whole, ':')
	if colon < 0 {
		return nil, nil, false
	}
	return whole[:colon], whole, colon > 0
}

// ParseTrusted reads the value of an ES-TrustedAuth header, "login; group, group".
// Its caller has made sure that the header can be believed. No groups need
// follow; no login, or a second semicolon, is event.ErrNotAuthorized.
func ParseTrusted(header string) (Principal, error) {
	login, list, _ := strings.Cut(header, ";")
	login = strings.TrimSpace(login)
	if login == "" || strings.Contains(list, ";") {
		return Principal{}, event.ErrNotAuthorized
	}
	p := Principal{Login: login, Groups: []string{}}
	for list != "" {
		var group string
		group, list, _ = strings.Cut(list, ",")
		if group = strings.TrimSpace(group); group != "" {
			p.Groups = append(p.Groups, group)
		}
	}
	return p, nil
}
