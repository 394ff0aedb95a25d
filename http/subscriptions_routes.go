package httpapi

import (
	"net/http"

	"github.com/annalsdb/annals/http/atom"
)

const (
	subscriptionsPath   = "/subscriptions"
	subscriptionsPrefix = atom.GroupsPath

	segInfo    = "info"
	segReplay  = "replayParked"
	segRestart = "restart"
)

var (
	subscriptionsOffer = newOffer(typeJSON, typeJSON, typeTextXML)
	competingOffer     = newOffer(typeCompetingXML, typeCompetingXML, typeCompetingJSON)
)

const settingsForms = 1<<formJSON | 1<<formTextXML

// inform is an operation that tells about groups.
func inform(serve func(*exchange) error) operation {
	return operation{method: http.MethodGet, offer: subscriptionsOffer, may: mayUser, serve: serve}
}

// order is an operation on groups whose body is not looked at.
func order(method string, a action, serve func(*exchange) error) operation {
	return operation{method: method, action: a, offer: subscriptionsOffer, may: mayOps, serve: serve}
}

// define is an operation on a group whose body holds settings.
func define(method string, serve func(*exchange) error) operation {
	op := order(method, writing, serve)
	op.bodies = settingsForms
	return op
}

// consume hands out messages: asking twice is not asking once.
func consume() operation {
	return operation{method: http.MethodGet, offer: competingOffer, may: mayReader, once: true, serve: handOutMessages}
}

// respond answers messages. Nothing is sent back, so the request may accept what it likes.
func respond(serve func(*exchange) error) operation {
	return operation{method: http.MethodPost, action: writing, may: mayReader, unnoted: true, serve: serve}
}

// review shows parked messages.
func review(serve func(*exchange) error) operation {
	return operation{method: http.MethodGet, offer: competingOffer, may: mayReader, serve: serve}
}
