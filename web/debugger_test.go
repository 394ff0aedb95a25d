package web_test

import (
	"testing"

	"github.com/dop251/goja"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/web"
)

// frame loads the files in the order in which the page does, and then the script
// of a projection. What the script emits is in the global emitted.
func frame(t *testing.T, script string) *goja.Runtime {
	t.Helper()
	vm := goja.New()
	run := func(text string) {
		t.Helper()
		check.Must(t, check.Err(vm.RunString(text)))
	}
	run(`var window = this, emitted = [], console = { log: function() { emitted.push(Array.prototype.slice.call(arguments)); } };`)
	for _, file := range []string{"v8/Prelude/Modules.js", "v8/Prelude/Projections.js", "es.projections.environment.js", "v8/Prelude/1Prelude.js"} {
		text := check.Value(web.Debugger.ReadFile("es/js/projections/" + file)).Must(t)
		run(string(text))
	}
	run(`window.processor = $initialize_hosted_projections(); processor.set_debugging();`)
	run(script)
	return vm
}

// TestDebugger drives the files as the web interface does.
func TestDebugger(t *testing.T) {
	const counts = `fromAll().when({ $init: function() { return { n: 0 }; }, T: function(s, e) { s.n += e.data.v; } })`
	for _, c := range []struct{ name, script, do, want string }{
		{"initial state", counts, `processor.initialize(); processor.debugging_get_state()`, `{"n":0}`},
		{"state that was stored", counts, `processor.set_state('{"n":5}'); processor.process_event('{"v":3}', true, 's', 'T', null, 0, '', null, '')`, `{"n":8}`},
		{"first event", counts, `processor.process_event('{"v":3}', true, 's', 'T', null, 0, '', null, '')`, `{"n":3}`},
		{"older pages", counts, `processor.process_event('{"v":3}', true, 's', 'T', null, 0, '', '')`, `{"n":3}`},
		{"type that is not handled", counts, `processor.initialize(); processor.process_event('{"v":3}', true, 's', 'U', null, 0, '', null, '')`, `{"n":0}`},
		{"name of a property of all objects", counts, `processor.initialize(); processor.process_event('{"v":3}', true, 's', 'toString', null, 0, '', null, '')`, `{"n":0}`},
		{"body that is no JSON", counts, `processor.initialize(); processor.process_event('{', true, 's', 'T', null, 0, '', null, '')`, `{"n":0}`},
		{"no handlers", `fromStream('s')`, `processor.process_event('{"v": 3}', true, 's', 'T', null, 0, '', null, '')`, `{"v":3}`},
		{"returned state", `fromAll().when({ $any: function(s, e) { return { id: e.streamId + e.sequenceNumber }; } })`,
			`processor.process_event('{}', true, 's', 'T', null, 7, '', null, '')`, `{"id":"s7"}`},
		{"event", `fromCategory('c').when({ $any: function(s, e) { return JSON.parse(JSON.stringify(e)); } })`,
			`processor.process_event('{"v":1}', true, 's', 'T', 'c', 7, '{"m":1}', '{"o":2}', 'p')`,
			`{"streamId":"s","sequenceNumber":7,"eventType":"T","isJson":true,"body":{"v":1},"data":{"v":1},"bodyRaw":"{\"v\":1}","metadataRaw":"{\"m\":1}",` +
				`"linkMetadataRaw":"{\"o\":2}","partition":"p","category":"c","metadata":{"m":1},"linkMetadata":{"o":2}}`},
		{"no JSON and no metadata", `fromAll().when({ $any: function(s, e) { return [typeof e.data, e.bodyRaw, e.metadata, e.linkMetadata, e.category]; } })`,
			`processor.process_event('text', false, 's', 'T', null, 7, '""', null, '')`, `["undefined","text",null,null,null]`},
		{"created", `fromAll().foreachStream().when({ $created: function(s, e) { s.born = e.streamId; return 1; }, T: function(s, e) { s.n = 1; } })`,
			`processor.process_event('{}', true, 's', 'T', null, 0, '', null, 's')`, `{"born":"s","n":1}`},
		{"shared state", `options({ biState: true }); fromAll().when({ $initShared: function() { return { t: 0 }; }, $any: function(s, e) { s[1].t++; s[0].x = 1; } })`,
			`processor.set_state('{"n":1}'); processor.process_event('{}', true, 's', 'T', null, 0, '', null, '') + processor.debugging_get_shared_state()`, `{"n":1,"x":1}{"t":1}`},
		{"partition", `fromAll().partitionBy(function(e) { return e.data.r; }).when({})`,
			`processor.get_state_partition('{"r":7}', true, 's', 'T', null, 0, '') + processor.get_state_partition('{"r":"x"}', 's', 'T', null, 0, '') + processor.get_state_partition('{"r":null}', true, 's', 'T', null, 0, '')`, `7x`},
		{"partition by stream", `fromAll().foreachStream().when({})`, `processor.get_state_partition('{}', true, 's', 'T', null, 0, '')`, `s`},
		{"emitted", `fromAll().when({ $any: function(s, e) { emit('o', 'E', { a: 1 }); linkTo('l', e); linkStreamTo('k', e.streamId); copyTo('x', e); log('said'); } })`,
			`processor.process_event('{}', true, 's', 'T', null, 4, '', null, ''); JSON.stringify(emitted)`,
			`[["emit","o","E",{"a":1}],["linkTo","l","4@s"],["linkStreamTo","k","s"],["log","said"]]`},
		{"all that can be said of a source", `options({ resultStreamName: 'r' });
			fromStreams(['a', 'b']).when({ T: function() {} }).filterBy(function() {}).transformBy(function() {}).outputTo('x'); fromAll().outputState().outputTo('y');
			fromCategories('a', 'b').partitionBy(function() {}).when({}).$defines_state_transform(); on_event('U', function(s, e) { return 1; }); on_any(function() {})`,
			`processor.process_event('{}', true, 's', 'U', null, 0, '', null, '')`, `1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := check.Value(frame(t, c.script).RunString(c.do)).Must(t)
			check.Equal(t, v.String(), c.want, c.do)
		})
	}
}
