package httpapi_test

import (
	"context"
	"testing"

	"github.com/annalsdb/annals/access"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

// TestUsersContractOfManager holds what a node puts together against the rules.
func TestUsersContractOfManager(t *testing.T) {
	usersContract(t, func(t *testing.T, change ...func(*httpapi.Options)) *node {
		hasher := access.NewHasher(access.HasherOptions{Iterations: 1, Parallel: 1})
		set := func(o *httpapi.Options) {
			store := storedUsers{o.Store.(*memStore)}
			check.Must(t, access.EnsureDefaultUsers(context.Background(), store, 1, "changeit", "changeit"))
			logins := access.NewAuthenticator(store, access.AuthenticatorOptions{Hasher: hasher})
			t.Cleanup(logins.Close)
			policy := access.NewPolicy(store, access.PolicyOptions{AllowAnonymousStreamAccess: true})
			o.Users, o.Access = access.NewManager(store, access.ManagerOptions{Hasher: hasher}), nodeAccess{logins, policy}
		}
		return newNode(t, append([]func(*httpapi.Options){set}, change...)...)
	})
}
