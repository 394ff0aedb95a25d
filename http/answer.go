package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
)

// indented is how documents for people are written as JSON.
const indented = "  "

// appendJSON appends a value as JSON, on lines of their own where there is an indent.
func appendJSON(b []byte, value any, indent string) ([]byte, error) {
	w := bytes.NewBuffer(b)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(value); err != nil {
		return b, fmt.Errorf("write JSON: %w", err)
	}
	return bytes.TrimSuffix(w.Bytes(), []byte("\n")), nil
}

// sendPlainJSON answers with a document that is JSON, whichever types are accepted.
func sendPlainJSON(x *exchange, document any) (err error) {
	if x.out, err = appendJSON(x.out[:0], document, indented); err != nil {
		return err
	}
	x.media = typeJSON
	x.ok()
	return nil
}

// sendFresh answers with a text that may be another at the next moment.
func sendFresh(x *exchange, body []byte) error {
	x.typed()
	x.w.Header()[keyCacheControl] = cacheNever
	x.send(http.StatusOK, body)
	return nil
}

// sendOut is sendFresh for what was written into the memory of the exchange.
func sendOut(x *exchange, b []byte) error {
	x.out = b
	return sendFresh(x, b)
}
