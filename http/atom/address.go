package atom

import "github.com/annalsdb/annals/subscription"

// Paths of streams and groups, which follow the origin.
const (
	StreamsPath = "/streams/"
	GroupsPath  = "/subscriptions/"
)

// AppendGroupURI appends the path of a group to the origin.
func AppendGroupURI(origin []byte, k subscription.Key) []byte {
	b := append(origin, GroupsPath...)
	b = AppendEscaped(b, k.Stream)
	b = append(b, '/')
	return AppendEscaped(b, k.Group)
}

// IsUnreserved reports whether a byte stands in an address as it is.
func IsUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' || c == '~'
}

// AppendEscaped appends a name with everything percent-encoded but the unreserved set.
func AppendEscaped(b []byte, name string) []byte {
	for i := range len(name) {
		b = AppendEscapedByte(b, name[i])
	}
	return b
}

// AppendEscapedByte appends a byte as AppendEscaped does.
func AppendEscapedByte(b []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	if IsUnreserved(c) {
		return append(b, c)
	}
	return append(b, '%', digits[c>>4], digits[c&15])
}
