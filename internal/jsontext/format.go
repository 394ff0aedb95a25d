package jsontext

// What AppendIndent writes at most: indentation grows with depth, and a text
// made for it (deeply nested, with many short elements at the bottom) would
// otherwise come out thousands of times as long as it went in.
const (
	indentFactor = 16
	indentFloor  = 64 << 10
)

// AppendIndent appends src with line feeds and two spaces a level. Empty objects
// and arrays stay on one line; strings and numbers stay as written. It reports
// false and appends nothing when src is not one valid JSON object, and when the
// result would be both above 64 KiB and many times as long as src.
func AppendIndent(dst, src []byte) ([]byte, bool) {
	if !IsObject(src) {
		return dst, false
	}
	start, limit := len(dst), indentFloor+indentFactor*len(src)
	depth := 0
	for i := Space(src, 0); i < len(src); {
		c := src[i]
		switch c {
		case '"':
			end := stringEnd(src, i+1)
			dst = append(dst, src[i:end]...)
			i = end
			continue
		case ' ', '\n', '\r', '\t':
			i++
			continue
		case ':':
			dst = append(dst, ": "...)
		case ',':
			dst = appendLine(append(dst, ','), depth)
		case '{', '[':
			dst = append(dst, c)
			i = Space(src, i+1)
			if src[i] == c+2 { // In ASCII a closing bracket is two after its opening one.
				dst = append(dst, src[i])
				i++
				continue
			}
			depth++
			dst = appendLine(dst, depth)
			if len(dst)-start > limit {
				return dst[:start], false
			}
			continue
		case '}', ']':
			depth--
			dst = append(appendLine(dst, depth), c)
		default:
			end, _ := scalarEnd(src, i)
			dst = append(dst, src[i:end]...)
			i = end
			continue
		}
		if len(dst)-start > limit {
			return dst[:start], false
		}
		i++
	}
	return dst, true
}

func appendLine(dst []byte, depth int) []byte {
	const spaces = "                                                                "
	dst = append(dst, '\n')
	n := 2 * depth
	for ; n > len(spaces); n -= len(spaces) {
		dst = append(dst, spaces...)
	}
	return append(dst, spaces[:n]...)
}
