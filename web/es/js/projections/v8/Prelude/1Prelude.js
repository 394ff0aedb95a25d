// The debugger of the web interface runs a projection in a frame of its own. The
// frame loads Modules.js, Projections.js, es.projections.environment.js and this
// file, calls $initialize_hosted_projections, and then loads the script of the
// projection, which defines its handlers by the functions that are global then.
function $initialize_hosted_projections() {
  'use strict';
  var definition = $annals.define(window);
  $annals.environment(window);
  var debugging = false;
  var state = null; // undefined or null: it has none
  var shared = null;

  function text(value) {
    return value === undefined || value === null ? null : JSON.stringify(value);
  }

  function parse(json) {
    return json === undefined || json === null || json === '' ? null : JSON.parse(json);
  }

  function begin() {
    state = definition.init ? definition.init() : {};
  }

  function beginShared() {
    shared = definition.initShared ? definition.initShared() : {};
  }

  function event(fields) {
    return $annals.Event(fields);
  }

  // call runs a handler of the script. Whoever looks at the frame with the tools of
  // the browser stops here, and steps into it.
  function call(handler, first, second) {
    if (debugging) {
      debugger;
    }
    return handler(first, second);
  }

  function handle(handler, e, keeps) {
    var given = definition.isBiState ? [state, shared] : state;
    var returned = call(handler, given, e);
    var next = keeps || returned === undefined ? given : returned;
    if (definition.isBiState) {
      state = next[0];
      shared = next[1];
    } else {
      state = next;
    }
  }

  return {
    set_debugging: function () { debugging = true; },

    // initialize begins the states anew.
    initialize: function () {
      begin();
      if (definition.isBiState) {
        beginShared();
      }
    },

    set_state: function (json) { state = parse(json); },
    set_shared_state: function (json) { shared = parse(json); },
    debugging_get_state: function () { return text(state); },
    debugging_get_shared_state: function () { return text(shared); },

    // get_state_partition names the partition of an event, empty when it has none.
    // Older pages leave isJson out.
    get_state_partition: function (body, isJson, streamId, type, category, number, metadata) {
      if (typeof isJson !== 'boolean') {
        return this.get_state_partition(body, true, isJson, streamId, type, category, number);
      }
      if (!definition.partitionBy) {
        return definition.byStream ? streamId : '';
      }
      var e = event({
        body: body, isJson: isJson, streamId: streamId, eventType: type, category: category, sequenceNumber: number, metadata: metadata
      });
      var name = definition.partitionBy(e);
      return typeof name === 'string' || typeof name === 'number' ? String(name) : '';
    },

    // process_event hands an event to its handler and returns the state as JSON.
    // Older pages leave linkMetadata out.
    process_event: function (body, isJson, streamId, type, category, number, metadata, linkMetadata, partition) {
      if (arguments.length === 8) {
        partition = linkMetadata;
        linkMetadata = null;
      }
      var e = event({
        body: body, isJson: isJson, streamId: streamId, eventType: type, category: category, sequenceNumber: number,
        metadata: metadata, linkMetadata: linkMetadata, partition: partition
      });
      if (isJson && e.body === undefined) {
        return text(state); // Events whose body is not what they say are passed over.
      }
      var own = Object.prototype.hasOwnProperty.call(definition.handlers, '$' + type) ? definition.handlers['$' + type] : definition.any;
      if (!definition.hasHandlers) {
        state = isJson ? e.body : e.bodyRaw;
        return text(state);
      }
      if (!own) {
        return text(state);
      }
      if (definition.isBiState && shared === null) {
        beginShared();
      }
      if (state === null || state === undefined) {
        begin();
        if (definition.created) {
          handle(definition.created, e, true);
        }
      }
      handle(own, e, false);
      return text(state);
    }
  };
}
