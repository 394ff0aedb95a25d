package certs

import (
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/youmark/pkcs8"
	"software.sslmate.com/src/go-pkcs12"

	"github.com/annalsdb/annals/internal/check"
)

const fuzzPassword = "pw"

// seeds are small files of every form.
func seeds(f *testing.F) [][]byte {
	f.Helper()
	must := func(data []byte, err error) []byte {
		check.Must(f, err)
		return data
	}
	a := check.Value(NewAuthority(AuthorityOptions{Key: ECDSAP256})).Must(f)
	key := a.key.(*ecdsa.PrivateKey)
	fast := &pkcs8.Opts{Cipher: pkcs8.AES256CBC, KDFOpts: pkcs8.PBKDF2Opts{SaltSize: 8, IterationCount: 2, HMACHash: pkcs8.DefaultOpts.KDFOpts.(pkcs8.PBKDF2Opts).HMACHash}}
	slow := &pkcs8.Opts{Cipher: pkcs8.TripleDESCBC, KDFOpts: pkcs8.ScryptOpts{SaltSize: 8, CostParameter: 16, BlockSize: 1, ParallelizationParameter: 1}}
	ders := [][]byte{
		a.Certificate.Raw,
		must(x509.MarshalPKCS8PrivateKey(key)),
		must(x509.MarshalECPrivateKey(key)),
		must(pkcs8.MarshalPrivateKey(key, []byte(fuzzPassword), fast)),
		must(pkcs8.MarshalPrivateKey(key, []byte(fuzzPassword), slow)),
		must(pkcs12.Passwordless.Encode(key, a.Certificate, nil, "")),
		must(pkcs12.Modern2026.WithIterations(2).Encode(key, a.Certificate, nil, fuzzPassword)),
		must(pkcs12.LegacyRC2.WithIterations(2).Encode(key, a.Certificate, nil, "")),
	}
	all := ders
	for i, kind := range []string{"CERTIFICATE", "PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "ENCRYPTED PRIVATE KEY"} {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: ders[i]}))
	}
	return all
}

// FuzzFiles reads files as certificates and as keys: whatever they hold, the
// answer comes soon, and what is accepted can be used.
func FuzzFiles(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > maxFileBytes {
			return
		}
		for _, password := range []string{"", fuzzPassword} {
			if b, err := parseBundle(data, password); err == nil && (len(b.certificates) == 0 || b.pkcs12 != (b.key != nil)) {
				t.Errorf("an incomplete bundle: %+v", b)
			}
			if key, err := parseKey(data, password); err == nil && key.Public() == nil {
				t.Error("a key without public key")
			}
		}
		if found, err := parseCertificates(data); err == nil {
			for _, c := range found {
				selfSigned(c)
				IsNode(c, "*.example.com")
			}
		}
	})
}

// FuzzCommonName looks for names that match what they must not.
func FuzzCommonName(f *testing.F) {
	f.Add("node1.example.com", "*.example.com")
	f.Add("*.example.com", "*.example.com")
	f.Add("10.0.0.1", "*.0.0.1")
	f.Fuzz(func(t *testing.T, name, reserved string) {
		if !matchesCommonName(name, reserved) {
			return
		}
		if name == "" || reserved == "" {
			t.Errorf("%q matches %q", name, reserved)
		}
		if !strings.Contains(reserved, "*") && !strings.Contains(reserved, ":") && !strings.EqualFold(name, reserved) {
			t.Errorf("%q matches %q", name, reserved)
		}
		if strings.Contains(reserved, "*") && strings.Count(name, ".") != strings.Count(reserved, ".") {
			t.Errorf("%q matches %q", name, reserved)
		}
	})
}

// A key that asks for too much work is refused before the work is done.
func TestEffortOfKeysIsBounded(t *testing.T) {
	marshal := func(v any) []byte {
		der := check.Value(asn1.Marshal(v)).Must(t)
		return der
	}
	identifier := func(id asn1.ObjectIdentifier, parameters any) pkix.AlgorithmIdentifier {
		return pkix.AlgorithmIdentifier{Algorithm: id, Parameters: asn1.RawValue{FullBytes: marshal(parameters)}}
	}
	aes256 := asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 42}
	encrypted := func(kdf pkix.AlgorithmIdentifier, cipher asn1.ObjectIdentifier, iv, data []byte) []byte {
		return marshal(encryptedKeyInfo{identifier(oidPBES2, pbes2Params{kdf, identifier(cipher, iv)}), data})
	}
	salt, block := make([]byte, 8), make([]byte, 16)
	pbkdf2Of := func(iterations, keyLength int) pkix.AlgorithmIdentifier {
		return identifier(oidPBKDF2, pbkdf2Params{Salt: salt, Iterations: iterations, KeyLength: keyLength,
			PRF: identifier(asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 11}, asn1.NullRawValue)})
	}
	scryptOf := func(n, r, p int) pkix.AlgorithmIdentifier {
		return identifier(oidScrypt, scryptParams{Salt: salt, N: n, R: r, P: p})
	}
	wrong := "its private key is not opened by the password"
	cases := []struct {
		name string
		der  []byte
		want string
	}{
		{"pbkdf2", encrypted(pbkdf2Of(10, 0), aes256, block, block), wrong},
		{"pbkdf2 with the length of the key", encrypted(pbkdf2Of(10, 32), aes256, block, block), wrong},
		{"pbkdf2 with another length", encrypted(pbkdf2Of(10, 16), aes256, block, block), errDamagedKey.text},
		{"no iteration", encrypted(pbkdf2Of(0, 0), aes256, block, block), errDamagedKey.text},
		{"many iterations", encrypted(pbkdf2Of(maxIterations+1, 0), aes256, block, block), errSlowKey.text},
		{"scrypt", encrypted(scryptOf(16, 1, 1), aes256, block, block), wrong},
		{"scrypt with a cost that is no power of two", encrypted(scryptOf(17, 1, 1), aes256, block, block), errDamagedKey.text},
		{"scrypt without cost", encrypted(scryptOf(0, 1, 1), aes256, block, block), errDamagedKey.text},
		{"scrypt of much memory", encrypted(scryptOf(1<<21, 1, 1), aes256, block, block), errSlowKey.text},
		{"scrypt of large blocks", encrypted(scryptOf(2, 1<<62, 1), aes256, block, block), errSlowKey.text},
		{"scrypt of many blocks", encrypted(scryptOf(2, 1, 1<<62), aes256, block, block), errSlowKey.text},
		{"short iv", encrypted(pbkdf2Of(1, 0), aes256, block[:8], block), errDamagedKey.text},
		{"no data", encrypted(pbkdf2Of(1, 0), aes256, block, nil), errDamagedKey.text},
		{"half a block", encrypted(pbkdf2Of(1, 0), aes256, block, block[:8]), errDamagedKey.text},
		{"unknown cipher", encrypted(pbkdf2Of(1, 0), asn1.ObjectIdentifier{1, 2, 3}, block, block), "is encrypted with the cipher 1.2.3, which is not supported"},
		{"unknown derivation", encrypted(identifier(asn1.ObjectIdentifier{1, 2, 4}, 1), aes256, block, block), "is encrypted with the key derivation 1.2.4, which is not supported"},
		{"unknown scheme", marshal(encryptedKeyInfo{identifier(asn1.ObjectIdentifier{1, 2, 5}, 1), block}), "is encrypted with the scheme 1.2.5, which is not supported"},
		{"unknown digest", encrypted(identifier(oidPBKDF2, pbkdf2Params{Salt: salt, Iterations: 1, PRF: identifier(asn1.ObjectIdentifier{1, 2, 6}, 1)}), aes256, block, block),
			"is encrypted with the digest 1.2.6, which is not supported"},
	}
	for _, c := range cases {
		if _, err := parseKey(c.der, fuzzPassword); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A bundle says in several places how much work its password is, and each counts.
func TestEffortOfBundlesIsBounded(t *testing.T) {
	a := check.Value(NewAuthority(AuthorityOptions{Key: ECDSAP256})).Must(t)
	// The number is written over in place, so the bundle keeps its structure.
	const iterations, written, huge = 0x010203, "\x02\x03\x01\x02\x03", "\x02\x03\x7f\xff\xff"
	for name, c := range map[string]struct {
		encoder *pkcs12.Encoder
		places  int // of certificates, key and checksum
	}{"2023": {pkcs12.Modern2023, 3}, "2026": {pkcs12.Modern2026, 3}, "legacy": {pkcs12.LegacyRC2, 3}} {
		der, err := c.encoder.WithIterations(iterations).Encode(a.key, a.Certificate, nil, fuzzPassword)
		check.Must(t, err)
		check.NoError(t, check.Err(parseBundle(der, fuzzPassword)), name)
		parts := strings.Split(string(der), written)
		if len(parts) != c.places+1 {
			t.Errorf("%s says in %d places how much work it is", name, len(parts)-1)
		}
		for i := 1; i < len(parts); i++ {
			bad := strings.Join(parts[:i], written) + huge + strings.Join(parts[i:], written)
			if _, err := parseBundle([]byte(bad), fuzzPassword); err == nil || err.Error() != "its password would take too long to check" {
				t.Errorf("%s, place %d: %v", name, i, err)
			}
		}
	}
}
