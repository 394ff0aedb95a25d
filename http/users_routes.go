package httpapi

import (
	"context"
)

const (
	usersPrefix = "/users/"
	// currentLogin stands for the caller where a login is read.
	currentLogin = "$current"
	// commandPath leads from a user to its commands.
	commandPath = "/command/"
)

var usersOffer = newOffer(typeJSON, typeJSON)

const usersForms = 1 << formJSON

// manage is an operation on users whose body is not looked at.
func manage(method string, may requirement, serve func(*exchange, context.Context) error) operation {
	return operation{method: method, offer: usersOffer, may: may, serve: leading(serve)}
}

// describe is an operation on users whose body says more.
func describe(method string, may requirement, serve func(*exchange, context.Context) error) operation {
	op := manage(method, may, serve)
	op.bodies = usersForms
	return op
}
