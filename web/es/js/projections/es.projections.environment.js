// What a script can do besides: in the debugger nothing is written, the console
// of the browser shows what would be.
(function () {
  'use strict';

  function show(what) {
    return function () {
      var args = Array.prototype.slice.call(arguments);
      if (what === 'linkTo' && args[1]) {
        args[1] = args[1].sequenceNumber + '@' + args[1].streamId;
      }
      console.log.apply(console, [what].concat(args));
    };
  }

  $annals.environment = function (target) {
    ['emit', 'linkTo', 'linkStreamTo', 'log'].forEach(function (name) { target[name] = show(name); });
    target.copyTo = function () {};
  };
})();
