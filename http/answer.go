package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
)

// appendJSON appends a value as JSON for people.
func appendJSON(b []byte, value any) ([]byte, error) {
	w := bytes.NewBuffer(b)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return b, fmt.Errorf("write JSON: %w", err)
	}
	return bytes.TrimSuffix(w.Bytes(), []byte("\n")), nil
}

// sendPlainJSON answers with a document that is JSON, whichever types are accepted.
func sendPlainJSON(x *exchange, document any) (err error) {
	if x.out, err = appendJSON(x.out[:0], document); err != nil {
		return err
	}
	x.media = typeJSON
	x.ok()
	return nil
}

// sendFreshJSON is sendPlainJSON for what may be another at the next moment.
func sendFreshJSON(x *exchange, document any) error {
	x.w.Header()[keyCacheControl] = cacheNever
	return sendPlainJSON(x, document)
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
