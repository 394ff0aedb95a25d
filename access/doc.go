// Package access decides who a caller is and what the caller may do, and keeps the users.
//
// An Authenticator turns credentials into a Principal, a Policy judges a Principal's rights to
// streams, and CheckLevel its right to an endpoint. All three decide over small interfaces to the
// store and change nothing. A Manager creates, changes and deletes users; EnsureDefaultUsers makes
// those that every database begins with. DESIGN.md tells how and in which order logins are checked,
// what bounds that, and what a guesser of passwords can learn.
//
// # Storage
//
// Users are ordinary events in system streams, so that they are replicated, backed up and restored
// with everything else:
//
//	$user-{login}                    one event per change, $UserCreated then $UserUpdated, as JSON:
//	                                 {"loginName": "jane", "fullName": "Jane Doe",
//	                                  "salt": base64, "hash": base64, "groups": ["billing"],
//	                                  "disabled": true, "alg": "pbkdf2-sha256", "iter": 600000}
//	                                 The last event counts. "disabled" is left out when false.
//	                                 A deleted user is a soft-deleted stream, whose last event
//	                                 has an empty hash; with such a last event, and not
//	                                 deleted yet, it is not a user either.
//	its metadata                     {"$acl":{"$w":"$admins","$d":"$admins","$mw":"$admins"}},
//	                                 written before the first event; with "$tb" besides when
//	                                 the login was used before
//	$users                           per creation one event of type $User, not JSON, its data the
//	                                 login; it may hold a login twice, and the logins of deleted users
//	$users-password-notifications    $PasswordChanged, {"loginName": "jane"}, before every change but
//	                                 enabling; $maxAge is one hour. For others: nothing here reads it
//
// "alg" and "iter" name how the hash was made, so that both can change. A document without "alg"
// comes from an older database: PBKDF2-HMAC-SHA1 with 1000 iterations and a hash of 20 bytes. Such
// a password works. The next login of its user replaces the hash with a current one.
//
// # Access lists
//
// The list of a right is the first that exists of: the stream's metadata $acl, the defaults of the
// stream $settings, the built-in default ($admins for names with "$" in front, else $all). The last
// event of $settings counts from its commit on: the parsed lists are kept only as long as its
// number is the same.
package access
