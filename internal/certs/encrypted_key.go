package certs

import (
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/des"
	"crypto/pbkdf2"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"hash"

	"golang.org/x/crypto/scrypt"
)

// Key derivation is made slow on purpose, and the file says how slow. The bounds
// are far above what tools write (2,048 to 1,000,000 iterations, 16 MiB) and keep
// a damaged file from holding up a reload for hours.
const (
	maxIterations  = 2_000_000
	maxScryptBytes = 128 << 20
)

var (
	oidPBES2  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}
	oidScrypt = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11591, 4, 11}
	// oidPKCS12PBE is the prefix of the password schemes of PKCS#12.
	oidPKCS12PBE = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 1}
)

// The structures of RFC 5958 (EncryptedPrivateKeyInfo), RFC 8018 (PBES2, PBKDF2)
// and RFC 7914 (scrypt).
type (
	encryptedKeyInfo struct {
		Algorithm pkix.AlgorithmIdentifier
		Data      []byte
	}
	pbes2Params struct {
		KDF, Cipher pkix.AlgorithmIdentifier
	}
	pbkdf2Params struct {
		Salt       []byte
		Iterations int
		KeyLength  int                      `asn1:"optional"`
		PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
	}
	scryptParams struct {
		Salt      []byte
		N, R, P   int
		KeyLength int `asn1:"optional"`
	}
)

// prfs are the digests of PBKDF2. Without a name it is SHA-1.
var prfs = map[string]func() hash.Hash{
	"":                    sha1.New,
	"1.2.840.113549.2.7":  sha1.New,
	"1.2.840.113549.2.8":  sha256.New224,
	"1.2.840.113549.2.9":  sha256.New,
	"1.2.840.113549.2.10": sha512.New384,
	"1.2.840.113549.2.11": sha512.New,
}

// blockCiphers are the ciphers of an encrypted key, which are used in CBC mode,
// and the lengths of their keys in bytes.
var blockCiphers = map[string]struct {
	make     func([]byte) (cipher.Block, error)
	keyBytes int
}{
	"1.2.840.113549.3.7":      {des.NewTripleDESCipher, 24},
	"2.16.840.1.101.3.4.1.2":  {aes.NewCipher, 16},
	"2.16.840.1.101.3.4.1.22": {aes.NewCipher, 24},
	"2.16.840.1.101.3.4.1.42": {aes.NewCipher, 32},
}

// isEncryptedKey tells an encrypted PKCS#8 key by its shape.
func isEncryptedKey(der []byte) bool {
	var info encryptedKeyInfo
	rest, err := asn1.Unmarshal(der, &info)
	return err == nil && len(rest) == 0
}

func unsupported(what string) error {
	return &problem{"is encrypted with " + what + ", which is not supported",
		"encrypt it again: openssl pkcs8 -topk8 -v2 aes-256-cbc -in FILE -out FILE.key"}
}

var (
	errDamagedKey = &problem{"its encrypted private key is damaged", "write the file again"}
	errSlowKey    = &problem{"its password would take too long to check", "encrypt it again with fewer iterations"}
)

// decryptKey opens an encrypted PKCS#8 key.
func decryptKey(der []byte, password string) (crypto.Signer, error) {
	if password == "" {
		return nil, &problem{"its private key is encrypted, and no password is configured", "set CertificatePrivateKeyPassword"}
	}
	var info encryptedKeyInfo
	var scheme pbes2Params
	if _, err := asn1.Unmarshal(der, &info); err != nil {
		return nil, errDamagedKey
	}
	if !info.Algorithm.Algorithm.Equal(oidPBES2) {
		return nil, unsupported("the scheme " + info.Algorithm.Algorithm.String())
	}
	if _, err := asn1.Unmarshal(info.Algorithm.Parameters.FullBytes, &scheme); err != nil {
		return nil, errDamagedKey
	}
	block, ok := blockCiphers[scheme.Cipher.Algorithm.String()]
	if !ok {
		return nil, unsupported("the cipher " + scheme.Cipher.Algorithm.String())
	}
	var iv []byte
	if _, err := asn1.Unmarshal(scheme.Cipher.Parameters.FullBytes, &iv); err != nil {
		return nil, errDamagedKey
	}
	derived, err := derive(scheme.KDF, password, block.keyBytes)
	if err != nil {
		return nil, err
	}
	opened, err := block.make(derived)
	if err != nil {
		return nil, fmt.Errorf("decrypt the private key: %w", err)
	}
	if len(iv) != opened.BlockSize() || len(info.Data) == 0 || len(info.Data)%opened.BlockSize() != 0 {
		return nil, errDamagedKey
	}
	plain := make([]byte, len(info.Data))
	cipher.NewCBCDecrypter(opened, iv).CryptBlocks(plain, info.Data)
	// The key's own length tells where the padding begins: what does not parse was
	// opened with another password.
	key, err := x509.ParsePKCS8PrivateKey(plain)
	if err != nil {
		return nil, &problem{"its private key is not opened by the password", "set CertificatePrivateKeyPassword to the key's password"}
	}
	return usableKey(key)
}

// derive makes the key of the cipher out of the password.
func derive(kdf pkix.AlgorithmIdentifier, password string, keyBytes int) ([]byte, error) {
	switch {
	case kdf.Algorithm.Equal(oidPBKDF2):
		var p pbkdf2Params
		if _, err := asn1.Unmarshal(kdf.Parameters.FullBytes, &p); err != nil {
			return nil, errDamagedKey
		}
		digest := prfs[p.PRF.Algorithm.String()]
		switch {
		case digest == nil:
			return nil, unsupported("the digest " + p.PRF.Algorithm.String())
		case p.Iterations < 1 || p.KeyLength != 0 && p.KeyLength != keyBytes:
			return nil, errDamagedKey
		case p.Iterations > maxIterations:
			return nil, errSlowKey
		}
		derived, err := pbkdf2.Key(digest, password, p.Salt, p.Iterations, keyBytes)
		if err != nil {
			return nil, fmt.Errorf("derive a key from the password: %w", err)
		}
		return derived, nil
	case kdf.Algorithm.Equal(oidScrypt):
		var p scryptParams
		if _, err := asn1.Unmarshal(kdf.Parameters.FullBytes, &p); err != nil {
			return nil, errDamagedKey
		}
		switch {
		case p.N < 2 || p.R < 1 || p.P < 1 || p.KeyLength != 0 && p.KeyLength != keyBytes:
			return nil, errDamagedKey
		// One after the other, so that no product overflows.
		case p.N > maxScryptBytes/128, p.R > maxScryptBytes/128/p.N, p.P > maxScryptBytes/128/p.N/p.R:
			return nil, errSlowKey
		}
		derived, err := scrypt.Key([]byte(password), p.Salt, p.N, p.R, p.P, keyBytes)
		if err != nil {
			return nil, errDamagedKey
		}
		return derived, nil
	}
	return nil, unsupported("the key derivation " + kdf.Algorithm.String())
}

// maxDepth is deeper than any bundle nests.
const maxDepth = 24

// checkEffort refuses a PKCS#12 bundle that asks for too many iterations, before
// any of them is done: those of its checksum, and those of every password
// scheme that is not itself encrypted.
func checkEffort(der []byte) error {
	var pfx struct {
		Version int
		Safe    asn1.RawValue
		MAC     struct {
			Digest     asn1.RawValue
			Salt       []byte
			Iterations int `asn1:"optional,default:1"`
		} `asn1:"optional"`
	}
	if _, err := asn1.Unmarshal(der, &pfx); err != nil {
		return &problem{"is a damaged PKCS#12 bundle", "export certificate and key again"}
	}
	if pfx.MAC.Iterations > maxIterations || excessive(der, maxDepth) {
		return &problem{"its password would take too long to check", "export the bundle again with fewer iterations"}
	}
	return nil
}

// excessive looks for password schemes with too many iterations, also within
// byte strings, which hold the parts of a bundle.
func excessive(der []byte, depth int) bool {
	var first asn1.ObjectIdentifier
	for n := 0; len(der) > 0; n++ {
		var element asn1.RawValue
		rest, err := asn1.Unmarshal(der, &element)
		if err != nil {
			return false // No structure: ciphertext, or the bytes of a key.
		}
		switch {
		case n == 0 && element.Class == asn1.ClassUniversal && element.Tag == asn1.TagOID:
			if _, err := asn1.Unmarshal(element.FullBytes, &first); err != nil {
				first = nil
			}
		case n == 1 && isPasswordScheme(first) && countsTooHigh(element.Bytes):
			return true
		}
		if element.IsCompound || element.Class == asn1.ClassUniversal && element.Tag == asn1.TagOctetString {
			if depth == 0 || excessive(element.Bytes, depth-1) {
				return true
			}
		}
		der = rest
	}
	return false
}

func isPasswordScheme(id asn1.ObjectIdentifier) bool {
	return id.Equal(oidPBKDF2) || len(id) > len(oidPKCS12PBE) && id[:len(oidPKCS12PBE)].Equal(oidPKCS12PBE)
}

// countsTooHigh looks at the numbers among the parameters of a password scheme.
func countsTooHigh(parameters []byte) bool {
	for len(parameters) > 0 {
		var element asn1.RawValue
		rest, err := asn1.Unmarshal(parameters, &element)
		if err != nil {
			return false
		}
		if element.Class == asn1.ClassUniversal && element.Tag == asn1.TagInteger {
			var count int64
			if _, err := asn1.Unmarshal(element.FullBytes, &count); err != nil || count > maxIterations {
				return true
			}
		}
		parameters = rest
	}
	return false
}
