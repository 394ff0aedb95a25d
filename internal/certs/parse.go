package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"software.sslmate.com/src/go-pkcs12"

	"github.com/annalsdb/annals/internal/vfs"
)

// maxFileBytes is the size past which a file is not read: a bundle of all public
// authorities has a quarter of it.
const maxFileBytes = 1 << 20

// A problem is an error with what to do about it.
type problem struct{ text, remedy string }

func (p *problem) Error() string { return p.text }

// readFile reads a regular file of bounded size. A pipe or a device would let
// the start of a node hang.
func readFile(fsys vfs.FS, name string) (_ []byte, err error) {
	info, err := fsys.Stat(name)
	switch {
	case err != nil:
		return nil, unreadable(err)
	case !info.Mode().IsRegular():
		return nil, &problem{"is not a regular file", "name a file"}
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, unreadable(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxFileBytes+1))
	switch {
	case err != nil:
		return nil, unreadable(err)
	case len(data) > maxFileBytes:
		return nil, &problem{fmt.Sprintf("is larger than %d bytes, so it is not a certificate or key", maxFileBytes), "name another file"}
	case len(data) == 0:
		return nil, &problem{"is empty", "write it again, or name another file"}
	}
	return data, nil
}

// parseFile reads a file and parses what it holds. The error does not name the file: findings carry
// it already.
func parseFile[T any](fsys vfs.FS, name string, parse func([]byte) (T, error)) (parsed T, err error) {
	data, err := readFile(fsys, name)
	if err != nil {
		return parsed, err
	}
	return parse(data)
}

// unreadable strips the file's name from an error: findings carry it already.
func unreadable(err error) error {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err
	}
	return &problem{fmt.Sprintf("cannot be read: %v", err), "check that it exists and that the user who runs the node may read it"}
}

// isPEM tells PEM from DER, which begins with the byte of a sequence.
func isPEM(data []byte) bool { return bytes.Contains(data, []byte("-----BEGIN ")) }

// withoutMark drops a byte order mark, which editors leave and PEM does not know.
func withoutMark(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }

// A bundle is what a certificate file holds.
type bundle struct {
	certificates []*x509.Certificate // the node's first
	pkcs12       bool
	key          crypto.Signer // of a PKCS#12 bundle, else nil
}

// parseBundle reads a certificate file of any form. The password opens PKCS#12 only.
func parseBundle(data []byte, password string) (*bundle, error) {
	data = withoutMark(data)
	if !isPEM(data) && isPKCS12(data) {
		return parsePKCS12(data, password)
	}
	found, err := parseCertificates(data)
	if err != nil {
		return nil, err
	}
	return &bundle{certificates: found}, nil
}

// parseCertificates reads one or more certificates in PEM or DER form. Other
// PEM blocks, such as a private key, are passed over.
func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	data = withoutMark(data)
	if !isPEM(data) {
		found, err := x509.ParseCertificates(data)
		if err != nil || len(found) == 0 {
			return nil, &problem{"is not a certificate in PEM or DER form", "name a file that holds an X.509 certificate"}
		}
		return found, nil
	}
	var found []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "CERTIFICATE", "X509 CERTIFICATE":
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, &problem{fmt.Sprintf("its certificate %d cannot be read: %v", len(found)+1, err), "write the file again"}
			}
			found = append(found, c)
		case "TRUSTED CERTIFICATE":
			return nil, &problem{"holds a certificate in the form that only OpenSSL reads (TRUSTED CERTIFICATE)", "convert it: openssl x509 -in FILE -out FILE.crt"}
		case "PKCS7":
			return nil, &problem{"holds PKCS#7", "convert it: openssl pkcs7 -print_certs -in FILE -out FILE.crt"}
		}
	}
	if len(found) == 0 {
		return nil, &problem{"holds no certificate", "name a file that holds an X.509 certificate"}
	}
	return found, nil
}

// isPKCS12 tells a bundle by its first element, the version; a certificate
// begins with a sequence.
func isPKCS12(data []byte) bool {
	var pfx struct {
		Version int
		Safe    asn1.RawValue
	}
	_, err := asn1.Unmarshal(data, &pfx)
	return err == nil && pfx.Version == 3
}

// parsePKCS12 reads a bundle of certificates with one key. Its first certificate
// is the one that belongs to the key: bundles of some systems begin with the
// authority's.
func parsePKCS12(data []byte, password string) (*bundle, error) {
	if err := checkEffort(data); err != nil {
		return nil, err
	}
	key, first, others, err := pkcs12.DecodeChain(data, password)
	switch {
	case errors.Is(err, pkcs12.ErrIncorrectPassword), errors.Is(err, pkcs12.ErrDecryption):
		return nil, &problem{"is a PKCS#12 bundle that the password does not open", "set CertificatePassword to the bundle's password"}
	case err != nil:
		return nil, &problem{fmt.Sprintf("cannot be read as PKCS#12 bundle: %v", err), "export certificate and key again, for example with openssl pkcs12 -export"}
	}
	signer, err := usableKey(key)
	if err != nil {
		return nil, err
	}
	b := &bundle{certificates: append([]*x509.Certificate{first}, others...), pkcs12: true, key: signer}
	for i, c := range b.certificates {
		if belongs(signer, c) {
			copy(b.certificates[1:i+1], b.certificates[:i])
			b.certificates[0] = c
			break
		}
	}
	return b, nil
}

// parseKey reads the first private key of a file: PKCS#1, SEC 1 or PKCS#8, in PEM or DER form. The
// password opens encrypted PKCS#8. A key that is not encrypted ignores it.
func parseKey(data []byte, password string) (crypto.Signer, error) {
	data = withoutMark(data)
	if !isPEM(data) {
		return parseKeyDER(data, password)
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Headers["DEK-Info"] != "" {
			return nil, &problem{"holds a key encrypted in the old way of OpenSSL", "convert it to PKCS#8: openssl pkcs8 -topk8 -in FILE -out FILE.key"}
		}
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "ENCRYPTED PRIVATE KEY":
			return decryptKey(block.Bytes, password)
		case "OPENSSH PRIVATE KEY":
			return nil, &problem{"holds a key in the form of OpenSSH", "convert it to PKCS#8, or make the key with openssl genpkey"}
		default:
			continue
		}
		if err != nil {
			return nil, &problem{fmt.Sprintf("its private key cannot be read: %v", err), "write the file again"}
		}
		return usableKey(key)
	}
	return nil, &problem{"holds no private key", "name the file that holds the certificate's private key"}
}

func parseKeyDER(data []byte, password string) (crypto.Signer, error) {
	if key, err := x509.ParsePKCS8PrivateKey(data); err == nil {
		return usableKey(key)
	}
	if key, err := x509.ParsePKCS1PrivateKey(data); err == nil {
		return usableKey(key)
	}
	if key, err := x509.ParseECPrivateKey(data); err == nil {
		return usableKey(key)
	}
	if isEncryptedKey(data) {
		return decryptKey(data, password)
	}
	return nil, &problem{"is not a private key in PEM or DER form", "name the file that holds the certificate's private key"}
}

// usableKey takes the kinds of keys that every client of the product can do TLS with.
func usableKey(key any) (crypto.Signer, error) {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return k, nil
	case *ecdsa.PrivateKey:
		switch k.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
			return k, nil
		}
	}
	return nil, &problem{"its private key is neither RSA nor ECDSA on P-256, P-384 or P-521", "make a certificate with such a key"}
}

// belongs says whether the private key is that of the certificate.
func belongs(key crypto.Signer, c *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(c.PublicKey)
}

// selfSigned says whether a certificate is its own issuer. A certificate that
// only names itself as issuer, as a forgery would, is not.
func selfSigned(c *x509.Certificate) bool {
	if !bytes.Equal(c.RawIssuer, c.RawSubject) {
		return false
	}
	err := c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature)
	// Old roots sign themselves with digests that no longer count. Nothing rests on
	// that signature: a root is trusted because the operator put it there.
	_, old := errors.AsType[x509.InsecureAlgorithmError](err)
	return err == nil || old
}
