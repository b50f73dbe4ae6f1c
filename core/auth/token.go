package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
)

// A key's text: prefix, 8 id characters, a dash, 43 secret characters.
const (
	prefix      = "sk-weir-"
	publicLen   = 8
	secretLen   = 43
	secretStart = len(prefix) + publicLen + 1
	tokenLen    = secretStart + secretLen
	saltLen     = 55 - secretLen // SHA-256 takes up to 55 bytes in one block
)

const (
	// publicAlphabet leaves out what people confuse when they read an id to each other: 0 O, 1 I l.
	publicAlphabet = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	// secretAlphabet has 62 characters without punctuation, so that a double click selects all of it: 62^43 > 2^256.
	secretAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

const shape = "a key looks like sk-weir-<8 characters>-<43 characters>, sent as Authorization: Bearer <key> or x-api-key: <key>"

// What a caller without a good key is told. Unknown, deleted and wrong secrets read the same.
var (
	errMissing   = makeRefusal("no API key was sent: " + shape)
	errMalformed = makeRefusal("malformed API key: " + shape)
	errUnknown   = makeRefusal("unknown or revoked API key: expected a live key of this gateway")
	errExpired   = makeRefusal("expired API key: expected a live key of this gateway; ask its operator for a new one")
)

func makeRefusal(message string) error { return llm.Errorf(llm.KindUnauthorized, "%s", message) }

// wellFormed checks length, separators and characters. Secrets given by people may use base64url's alphabet.
func wellFormed[T ~string | ~[]byte](token T) bool {
	if len(token) != tokenLen || string(token[:len(prefix)]) != prefix || token[secretStart-1] != '-' {
		return false
	}
	for i := len(prefix); i < tokenLen; i++ {
		c := token[i]
		alnum := c-'0' < 10 || c|0x20-'a' < 26
		if !alnum && i != secretStart-1 && (i < secretStart || c != '-' && c != '_') {
			return false
		}
	}
	return true
}

// hash is what is stored of a token.
func (d *Directory) hash(token []byte) []byte {
	h := hmac.New(sha256.New, d.secret)
	h.Write(token)
	return h.Sum(nil)
}

// digest is what is remembered in memory of a token that was verified.
func (d *Directory) digest(token []byte) [sha256.Size]byte {
	var block [saltLen + secretLen]byte
	copy(block[:], d.salt[:])
	copy(block[saltLen:], token[secretStart:])
	return sha256.Sum256(block[:])
}

// Mint makes a new key text from the injected randomness: the plaintext to show once, and the public part, hash
// and preview to store. The public part is not in use by any key of the directory.
func (d *Directory) Mint(random io.Reader) (plaintext string, k Key, err error) {
	for range 16 {
		text := make([]byte, 0, tokenLen)
		text = append(text, prefix...)
		if text, err = draw(text, random, publicAlphabet, publicLen); err != nil {
			return "", Key{}, err
		}
		text = append(text, '-')
		if text, err = draw(text, random, secretAlphabet, secretLen); err != nil {
			return "", Key{}, err
		}
		if k, err = d.Adopt(string(text)); err == nil {
			return string(text), k, nil
		}
	}
	return "", Key{}, fmt.Errorf("mint a key: %w", err)
}

// draw appends n characters, each equally likely: bytes beyond the last whole multiple of the alphabet are thrown away.
func draw(to []byte, random io.Reader, alphabet string, n int) ([]byte, error) {
	var buf [64]byte
	fair := 256 - 256%len(alphabet)
	for n > 0 {
		if _, err := io.ReadFull(random, buf[:]); err != nil {
			return nil, fmt.Errorf("mint a key: %w", err)
		}
		for _, b := range buf {
			if int(b) < fair && n > 0 {
				to, n = append(to, alphabet[int(b)%len(alphabet)]), n-1
			}
		}
	}
	return to, nil
}

// Adopt is Mint for a given plaintext (demo's fixed key); the text must have a key's shape, and its id characters must
// be free: KindConflict otherwise.
func (d *Directory) Adopt(plaintext string) (Key, error) {
	if !wellFormed(plaintext) {
		return Key{}, llm.Invalid("key", "malformed key: expected sk-weir-<8 letters or digits>-<43 letters, digits, - or _>, got %d characters", len(plaintext))
	}
	public := strings.Clone(plaintext[len(prefix) : secretStart-1]) // a part would keep the secret in memory
	if d.lookup(packed(plaintext)) != nil {
		return Key{}, llm.Errorf(llm.KindConflict, "a key with the id characters %s exists already", public)
	}
	return Key{
		Public:  public,
		Hash:    d.hash([]byte(plaintext)),
		Preview: prefix + public + "-..." + plaintext[tokenLen-4:],
	}, nil
}

// packed is the id characters as one number, the key of the shards' maps.
func packed[T ~string | ~[]byte](token T) (id uint64) {
	for i := len(prefix); i < secretStart-1; i++ {
		id = id<<8 | uint64(token[i])
	}
	return id
}
