// Package xmljson turns JSON values into XML elements and XML elements into JSON values.
//
// From JSON to XML, by [AppendXML]: members become child elements of their name, an array becomes
// one element of its member's name for each of its elements, scalars become text with their digits
// as written. Leading members named "@name" with a scalar become attributes and "#text" becomes
// text, so that what came from XML goes back to it. Names that XML does not allow are escaped as
// _xHHHH_, characters that XML does not allow become U+FFFD.
//
// From XML to JSON, by [Parse] and [Element.AppendJSON]: child elements become members, repeated
// ones an array at the place of the first, attributes members named "@name", text next to elements
// or attributes the member "#text"; an element with text alone becomes a string, an empty one "".
// All values are strings. White space between elements is not text. Namespaces are not resolved:
// prefixes and declarations are names like others.
//
// Both directions take time and memory in proportion to their input.
package xmljson
