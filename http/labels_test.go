package httpapi_test

import "testing"

func TestMalformedTags(t *testing.T) {
	const (
		head = `[{"eventId":"c322e299-cb73-4b47-97c5-5054f920746e","eventType":"T","data":1,`
		text = `$tags: the tag "a,b" has a comma`
	)
	for _, c := range []struct {
		name, stream, contentType, body string
		status                          int
		text                            string
	}{
		{"metadata", "s", eventsJSON, head + `"metadata":{"$tags":["a,b"]}}]`, 400, text},
		{"metadata as text", "s", eventsJSON, head + `"metadata":"{\"\\u0024tags\":7}"}]`, 400, "$tags: neither an array of texts nor a text"},
		{"xml", "s", eventsXML, `<E><E><EventId>c322e299-cb73-4b47-97c5-5054f920746e</EventId><EventType>T</EventType><Metadata>{"$tags":"a,,b"}</Metadata></E></E>`, 400, "$tags: a tag is empty"},
		{"system stream", "$s", eventsJSON, head + `"metadata":{"$tags":["a,b"]}}]`, 201, ""},
		{"sound", "s", eventsJSON, head + `"metadata":{"$tags":["a","b"]}}]`, 201, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.do("POST", "/streams/"+c.stream, c.body, admin("Content-Type", c.contentType)).is(t, c.status).says(t, c.text)
		})
	}
}

func TestIndexStreamsAreNotWritten(t *testing.T) {
	const text = "Index streams cannot be written to."
	id := []string{"Content-Type", appJSON, "ES-EventType", "T", "ES-EventId", "c322e299-cb73-4b47-97c5-5054f920746e"}
	n := newNode(t)
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		text                     string
	}{
		{"append", "POST", "/streams/$idx-ce-a", `{}`, id, 400, text},
		{"append by id", "POST", "/streams/$idx-x/incoming/c322e299-cb73-4b47-97c5-5054f920746e", `{}`, id[:4], 400, text},
		{"deletion", "DELETE", "/streams/$idx-all", ``, nil, 400, text},
		{"hard deletion", "DELETE", "/streams/$idx", ``, []string{"ES-HardDelete", "true"}, 400, text},
		{"metadata", "POST", "/streams/$idx-all/metadata", `{}`, append(id[4:], "Content-Type", appJSON), 400, text},
		{"metadata of all", "POST", "/streams/$idx/metadata", `{}`, append(id[4:], "Content-Type", appJSON), 201, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.do(c.method, c.path, c.body, admin(c.headers...)).is(t, c.status).says(t, c.text)
		})
	}
}
