// The functions by which a script says what it reads and how it handles it.
(function () {
  'use strict';

  // define makes of target an object with the functions of a definition, and
  // returns what they put together.
  $annals.define = function (target) {
    var handlers = {};
    var d = {
      handlers: handlers, any: null, init: null, initShared: null, created: null, deleted: null, hasHandlers: false,
      byStream: false, partitionBy: null, isBiState: false, transforms: [], options: {}
    };

    function handle(type, fn) {
      switch (type) {
        case '$init': d.init = fn; return;
        case '$initShared': d.initShared = fn; d.isBiState = true; return;
        case '$created': d.created = fn; return;
        case '$deleted': d.deleted = fn; return;
        case '$any': d.any = fn; break;
        default: handlers['$' + type] = fn;
      }
      d.hasHandlers = true;
    }

    // chain is an object with those of the functions that may follow.
    function chain(names) {
      var next = {};
      names.forEach(function (name) { next[name] = functions[name]; });
      return next;
    }

    var shaping = ['transformBy', 'filterBy', 'outputState', 'outputTo'];
    function transform(fn, filters) {
      d.transforms.push({ fn: fn, filters: filters });
      return chain(shaping);
    }

    var functions = {
      when: function (given) {
        Object.keys(given).forEach(function (type) {
          if (typeof given[type] === 'function') {
            handle(type, given[type]);
          }
        });
        return chain(['transformBy', 'filterBy', 'outputState', 'outputTo', '$defines_state_transform']);
      },
      partitionBy: function (fn) {
        d.partitionBy = fn;
        return chain(['when']);
      },
      foreachStream: function () {
        d.byStream = true;
        return chain(['when']);
      },
      outputState: function () { return chain(['transformBy', 'filterBy', 'outputTo']); },
      transformBy: function (fn) { return transform(fn, false); },
      filterBy: function (fn) { return transform(fn, true); },
      outputTo: function () { return {}; },
      $defines_state_transform: function () {}
    };

    var log = ['when', 'partitionBy', 'foreachStream', 'outputState'];
    var streams = ['when', 'partitionBy', 'outputState'];
    target.fromAll = target.fromCategory = target.fromCategories = function () { return chain(log); };
    target.fromStream = target.fromStreams = function () { return chain(streams); };
    target.on_event = handle;
    target.on_any = function (fn) { handle('$any', fn); };
    target.options = function (given) {
      Object.keys(given).forEach(function (name) {
        d.options[name] = given[name];
        if (name.toLowerCase() === 'bistate') {
          d.isBiState = given[name] === true;
        }
      });
    };
    return d;
  };
})();
