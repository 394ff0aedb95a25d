// Package access decides who a caller is and what the caller may do.
//
// An Authenticator turns credentials into a Principal, a Policy judges a
// Principal's rights to streams, and CheckLevel its right to an endpoint. All
// three decide over small interfaces to the store and change nothing;
// EnsureDefaultUsers alone writes, through a Writer. There are no goroutines here.
//
// # Storage
//
// Users are ordinary events in system streams, so that they are replicated,
// backed up and restored with everything else:
//
//	$user-{login}                    one event per change, $UserCreated then $UserUpdated, as JSON:
//	                                 {"loginName": "jane", "fullName": "Jane Doe",
//	                                  "salt": base64, "hash": base64, "groups": ["billing"],
//	                                  "disabled": true, "alg": "pbkdf2-sha256", "iter": 600000}
//	                                 The last event counts. "disabled" is left out when false.
//	                                 A deleted user is a soft-deleted stream.
//	its metadata                     {"$acl":{"$w":"$admins","$d":"$admins","$mw":"$admins"}},
//	                                 written before the first event
//	$users                           per creation one event of type $User, not JSON, its data the
//	                                 login; it may hold a login twice, and the logins of deleted users
//	$users-password-notifications    $PasswordChanged, {"loginName": "jane"}, for every change after
//	                                 which a cached login must be forgotten; $maxAge is one hour
//
// "alg" and "iter" name how the hash was made, so that both can change. A
// document without "alg" comes from a database of before: PBKDF2-HMAC-SHA1 with
// 1000 iterations and a hash of 20 bytes. Such a password works until it is
// changed, and is then hashed as today.
//
// # Passwords in memory
//
// Hashing is slow on purpose, so successful logins are cached: up to 1000
// principals, each with a digest of its credentials under a random key of the
// process, never the password. Hashing takes at most half of the processors at
// a time, so that guessing cannot starve the database.
//
// # Access lists
//
// The list of a right is the first that exists of: the stream's metadata $acl,
// the defaults of the stream $settings, the built-in default ($admins for names
// with "$" in front, else $all). The last event of $settings counts from its
// commit on: the parsed lists are kept only as long as its number is the same.
package access
