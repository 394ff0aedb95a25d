// What a handler sees of an event. The debugger of a projection loads this file
// first; 1Prelude.js says how the files work together.
var $annals = {};

(function () {
  'use strict';

  // parsed is what a text holds that should be JSON; undefined when it is none.
  function parsed(text) {
    try {
      return JSON.parse(text);
    } catch (e) {
      return undefined;
    }
  }

  // raw is the text of a part of an event, which may come parsed; null when there is none.
  function raw(part) {
    if (part === undefined || part === null || part === '') {
      return null;
    }
    return typeof part === 'string' ? part : JSON.stringify(part);
  }

  // described is the text of metadata. The page makes a JSON text of metadata that are none.
  function described(metadata) {
    var text = raw(metadata);
    return text === '""' || text === 'null' ? null : text;
  }

  function object(text) {
    return text === null ? null : JSON.parse(text);
  }

  // Event makes the object that handlers are given. Its properties cannot be set.
  $annals.Event = function (fields) {
    var bodyRaw = raw(fields.body);
    var metadataRaw = described(fields.metadata);
    var linkMetadataRaw = described(fields.linkMetadata);
    var body = fields.isJson && bodyRaw !== null ? parsed(bodyRaw) : undefined;
    function property(target, name, get) {
      Object.defineProperty(target, name, { enumerable: true, get: get });
    }
    var event = {};
    var values = {
      streamId: fields.streamId, sequenceNumber: Number(fields.sequenceNumber), eventType: fields.eventType,
      eventId: fields.eventId, isJson: fields.isJson, body: body, data: body, bodyRaw: bodyRaw,
      metadataRaw: metadataRaw, linkMetadataRaw: linkMetadataRaw,
      partition: fields.partition || '', category: fields.category || null
    };
    Object.keys(values).forEach(function (name) {
      property(event, name, function () { return values[name]; });
    });
    property(event, 'metadata', function () { return object(metadataRaw); });
    property(event, 'linkMetadata', function () { return object(linkMetadataRaw); });
    return event;
  };
})();
