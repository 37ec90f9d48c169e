// Keeps secrets out of texts that somebody else has made and that are about to be shown or kept:
// lines of a job's log, messages of faults. What this program writes itself names places without
// their secrets from the start (object/url.h); this is the last door. Functions are safe from any
// thread, take no lock, and may be called in a forked child.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

// From now on RedactSecrets() finds this text by itself: a secret key, a token, a password that the
// process works with. Of less than 8 bytes nothing is remembered, since they would be found in
// words; of many the latest 64. Kept until the process ends.
void RememberSecret(std::string_view secret);

// Returns `text` with "***" in place of
//   what RememberSecret() was given;
//   user and password of a URL, "://USER:PASSWORD@";
//   the value behind a name that says it is secret: "sig=VALUE", "AWS_SECRET_ACCESS_KEY=VALUE",
//   "'session_token': 'VALUE'", also in the query of a URL;
//   "Bearer VALUE", "Basic VALUE", and ids of AWS keys.
// A text without any of these comes back as it is.
std::string RedactSecrets(std::string_view text);

}  // namespace headrace
