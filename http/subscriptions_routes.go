package httpapi

import (
	"net/http"
	"net/url"

	"github.com/julienschmidt/httprouter"
)

const (
	subscriptionsPath   = "/subscriptions"
	subscriptionsPrefix = subscriptionsPath + "/"

	segAck        = "ack"
	segInfo       = "info"
	segNack       = "nack"
	segReplay     = "replayParked"
	segRestart    = "restart"
	segViewParked = "viewparkedmessages"
	// maxSubscriptionSegments is that of the longest path: viewparkedmessages/{s}/{g}/{n}/backward/{c}.
	maxSubscriptionSegments = 6
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
	return operation{method: http.MethodGet, offer: competingOffer, may: mayReader, once: true, serve: (*exchange).messages}
}

// respond answers messages. Nothing is sent back, so the request may accept what it likes.
func respond(serve func(*exchange) error) operation {
	return operation{method: http.MethodPost, action: writing, may: mayReader, serve: serve}
}

// review shows parked messages.
func review(serve func(*exchange) error) operation {
	return operation{method: http.MethodGet, offer: competingOffer, may: mayReader, serve: serve}
}

// The paths of subscriptions.
var (
	groupsResource       = newResource(inform((*exchange).listGroups))
	streamGroupsResource = newResource(inform((*exchange).listGroupsOfStream))
	// restartResource is that of a stream's groups as well, for a stream of that name.
	restartResource = newResource(
		inform((*exchange).listGroupsOfStream),
		order(http.MethodPost, writing, (*exchange).restartGroups),
	)
	groupResource = newResource(
		define(http.MethodPut, (*exchange).createGroup),
		define(http.MethodPost, (*exchange).updateGroup),
		order(http.MethodDelete, deleting, (*exchange).deleteGroup),
		consume(),
	)
	messagesResource       = newResource(consume())
	groupInfoResource      = newResource(inform((*exchange).groupInfo))
	ackResource            = newResource(respond((*exchange).ackMessages))
	nackResource           = newResource(respond((*exchange).nackMessages))
	replayResource         = newResource(order(http.MethodPost, writing, (*exchange).replayParked))
	parkedBackwardResource = newResource(review((*exchange).parkedBackward))
	parkedForwardResource  = newResource(review((*exchange).parkedForward))
)

// subscriptionPatterns are the forms of path of subscriptions.
var subscriptionPatterns = []struct {
	path string
	res  *resource
}{
	{subscriptionsPath, &groupsResource},
	{subscriptionsPrefix + segRestart, &restartResource},
	{subscriptionsPrefix + "{stream}", &streamGroupsResource},
	{subscriptionsPrefix + "{stream}/{subscription}", &groupResource},
	{subscriptionsPrefix + "{stream}/{subscription}/{count}", &messagesResource},
	{subscriptionsPrefix + "{stream}/{subscription}/" + segInfo, &groupInfoResource},
	{subscriptionsPrefix + "{stream}/{subscription}/" + segAck, &ackResource},
	{subscriptionsPrefix + "{stream}/{subscription}/" + segAck + "/{id}", &ackResource},
	{subscriptionsPrefix + "{stream}/{subscription}/" + segNack, &nackResource},
	{subscriptionsPrefix + "{stream}/{subscription}/" + segNack + "/{id}", &nackResource},
	{subscriptionsPrefix + "{stream}/{subscription}/" + segReplay, &replayResource},
	{subscriptionsPrefix + segViewParked + "/{stream}/{subscription}/{number}/" + segBackward + "/{count}", &parkedBackwardResource},
	{subscriptionsPrefix + segViewParked + "/{stream}/{subscription}/{number}/" + segForward + "/{count}", &parkedForwardResource},
}

func (s *Server) servesSubscriptions() bool { return s.opts.Subscriptions != nil }

func (s *Server) serveSubscriptions(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
	res, rt := resolveSubscription(r.URL)
	s.serve(w, r, res, rt)
}

// resolveSubscription reads the path of a URL of subscriptions. The resource is
// nil when there is none. Names are decoded once, and may hold any character.
func resolveSubscription(u *url.URL) (*resource, route) {
	var seg [maxSubscriptionSegments]string
	n := segments(u, subscriptionsPrefix, seg[:])
	for _, s := range seg[:max(0, n)] {
		if s == "" { // A slash too much.
			return nil, route{}
		}
	}
	rt := route{stream: seg[0], group: seg[1]}
	switch n {
	case 0:
		return &groupsResource, route{}
	case 1:
		if rt.stream == segRestart {
			return &restartResource, rt
		}
		return &streamGroupsResource, rt
	case 2:
		return &groupResource, rt
	case 3:
		switch seg[2] {
		case segInfo:
			return &groupInfoResource, rt
		case segAck:
			return &ackResource, rt
		case segNack:
			return &nackResource, rt
		case segReplay:
			return &replayResource, rt
		}
		rt.count = seg[2]
		return &messagesResource, rt
	case 4:
		rt.from = seg[3]
		switch seg[2] {
		case segAck:
			return &ackResource, rt
		case segNack:
			return &nackResource, rt
		}
	case 6:
		rt = route{stream: seg[1], group: seg[2], from: seg[3], count: seg[5]}
		switch {
		case seg[0] != segViewParked:
		case seg[4] == segBackward:
			return &parkedBackwardResource, rt
		case seg[4] == segForward:
			return &parkedForwardResource, rt
		}
	}
	return nil, route{}
}
