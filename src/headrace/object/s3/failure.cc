#include "headrace/object/s3/failure.h"

#include <algorithm>
#include <array>

#include "headrace/base/text.h"
#include "headrace/object/retry_after.h"
#include "headrace/object/uri.h"

namespace headrace::object {

namespace {

struct VerbWords {
  std::string_view doing;       // "reading"
  std::string_view permission;  // the action that a policy has to allow
};

VerbWords WordsFor(S3Verb verb) {
  switch (verb) {
    case S3Verb::kHead:
    case S3Verb::kGet:
      return {"reading", "s3:GetObject"};
    case S3Verb::kPut:
    case S3Verb::kStartUpload:
    case S3Verb::kPutPart:
    case S3Verb::kCompleteUpload:
      return {"writing", "s3:PutObject"};
    case S3Verb::kDelete:
      return {"deleting", "s3:DeleteObject"};
    case S3Verb::kList:
      return {"listing", "s3:ListBucket"};
    case S3Verb::kAbortUpload:
      return {"giving up an upload", "s3:AbortMultipartUpload"};
    case S3Verb::kListUploads:
      return {"listing uploads", "s3:ListBucketMultipartUploads"};
  }
  return {"access", "s3:*"};
}

template <size_t N>
bool IsOneOf(std::string_view code, const std::array<std::string_view, N>& codes) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

// What each refusal for the credentials' sake means.
struct Refusal {
  std::string_view code, advice;
};
constexpr std::array<Refusal, 12> kRefusals = {{
    {"ExpiredToken", "they have expired: get new ones"},
    {"ExpiredTokenException", "they have expired: get new ones"},
    {"RequestExpired", "they have expired: get new ones"},
    {"TokenRefreshRequired", "they have expired: get new ones"},
    {"InvalidToken", "the session token is wrong or has expired: get new ones"},
    {"InvalidClientTokenId", "the server does not know them"},
    {"InvalidAccessKeyId", "the server does not know the access key id: is it for this endpoint?"},
    {"SignatureDoesNotMatch",
     "the secret access key does not belong to the access key id, or a proxy changes requests"},
    {"AccountProblem", "the account is blocked: ask its owner"},
    {"AllAccessDisabled", "all access to the bucket is switched off: ask its owner"},
    {"NotSignedUp", "the account is not signed up for S3"},
    {"UnauthorizedAccess", "the account may not be used with this endpoint"},
}};

constexpr std::array<std::string_view, 15> kTryLater = {
    "SlowDown",
    "ServiceUnavailable",
    "InternalError",
    "RequestTimeout",
    "RequestTimeoutException",
    "OperationAborted",
    "ConditionalRequestConflict",
    "Throttling",
    "ThrottlingException",
    "RequestThrottled",
    "RequestLimitExceeded",
    "TooManyRequests",
    "BandwidthLimitExceeded",
    "IncompleteBody",
    "Busy",
};

// Of these, and of answers with the status 429 or 503: too much is asked.
constexpr std::array<std::string_view, 8> kThrottled = {
    "SlowDown",         "ServiceUnavailable",   "Throttling",      "ThrottlingException",
    "RequestThrottled", "RequestLimitExceeded", "TooManyRequests", "BandwidthLimitExceeded"};

constexpr std::array<std::string_view, 11> kWrongArguments = {
    "InvalidBucketName", "KeyTooLongError",        "KeyTooLong",
    "InvalidURI",        "InvalidArgument",        "InvalidRequest",
    "EntityTooSmall",    "EntityTooLarge",         "MalformedXML",
    "InvalidKey",        "XMinioInvalidObjectName"};

constexpr std::array<std::string_view, 4> kFull = {"QuotaExceeded", "InsufficientStorage",
                                                   "XMinioStorageFull", "TooManyParts"};
constexpr std::array<std::string_view, 4> kDamaged = {
    "BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"};

class FailureReader {
 public:
  FailureReader(const S3Attempt& attempt, const net::HttpResponse& response, const S3Error& error)
      : a_(attempt), r_(response), e_(error) {}

  Status Read() const {
    if (Status later = TryLater(); !later.ok()) return later;
    if (Status condition = Condition(); !condition.ok()) return condition;
    if (Status place = Place(); !place.ok()) return place;
    if (Status refused = Refused(); !refused.ok()) return refused;
    return Other();
  }

 private:
  bool Is(std::string_view code) const { return e_.code == code; }

  // " (NoSuchKey: The specified key does not exist)", or the bare status.
  std::string Said() const {
    std::string said = " (status " + std::to_string(r_.status);
    if (!e_.code.empty()) said += ", " + e_.code;
    if (!e_.message.empty()) said += ": " + e_.message;
    return said + ")";
  }
  std::string Bucket() const { return "bucket '" + EscapeText(a_.bucket) + "'"; }
  // "; the credentials are those of ...".
  std::string WhoseCredentials() const {
    if (a_.credentials.empty())
      return "nothing was signed, since access without credentials was asked for";
    return "the credentials are those of " + a_.credentials;
  }

  Status TryLater() const {
    bool later = r_.status == 429 || (r_.status >= 500 && r_.status != 501 && r_.status != 507);
    if (Is("NotImplemented")) later = false;
    if (!later && !IsOneOf(e_.code, kTryLater)) return OkStatus();
    auto wait = ReadRetryAfter(r_, a_.now_ns);
    std::string asks = wait ? "; it asks to wait for " + FormatDuration(*wait) : "";
    Status status = Error(Code::kUnavailable, "the server cannot answer now{}{}", Said(), asks);
    if (wait) status = std::move(status).RetryAfter(*wait);
    if (r_.status == 429 || r_.status == 503 || IsOneOf(e_.code, kThrottled))
      status = std::move(status).Throttled();
    return status;
  }

  Status Condition() const {
    bool gone = r_.status == 404 && a_.verb == S3Verb::kPut && a_.if_match && !Is("NoSuchBucket");
    if (r_.status != 412 && !gone) return OkStatus();
    if (a_.if_absent) return Error(Code::kAlreadyExists, "an object with this key is there");
    return Error(Code::kFailedPrecondition, "the object {} since its etag was taken",
                 gone ? "was deleted" : "was replaced");
  }

  // The bucket, the key, the region.
  Status Place() const {
    if (Is("NoSuchBucket"))
      return Error(Code::kNotFound,
                   "there is no {} at {}: check its name, the endpoint and the "
                   "region",
                   Bucket(), a_.endpoint);
    if (Is("NoSuchUpload"))
      return Error(Code::kFailedPrecondition,
                   "the upload is not there any more: it was completed or given up; start anew");
    if (r_.status == 404) {
      if (a_.verb == S3Verb::kList || a_.verb == S3Verb::kListUploads)
        return Error(Code::kNotFound,
                     "{} has nothing that can be listed as S3 does: check the "
                     "endpoint and the bucket's name{}",
                     a_.endpoint, Said());
      return Error(Code::kNotFound, "no object has this key{}", Said());
    }
    bool elsewhere = Is("PermanentRedirect") || Is("AuthorizationHeaderMalformed") ||
                     Is("IllegalLocationConstraintException") || Is("IncorrectEndpoint");
    if (!elsewhere && (r_.status < 300 || r_.status >= 400)) return OkStatus();
    return Error(Code::kFailedPrecondition,
                 "{} is {}, and {} with the region {} was asked: set region or endpoint{}",
                 Bucket(), Whereabouts(), a_.endpoint, a_.region, Said());
  }
  // As far as the answer tells: "in eu-west-1".
  std::string Whereabouts() const {
    std::string region = e_.region;
    if (region.empty()) region = EscapeText(r_.Header("x-amz-bucket-region").substr(0, 64));
    if (!region.empty()) return "in " + region;
    auto location = ParseUri(r_.Header("location"));
    if (location.ok() && !location->host.empty())
      return "said to be at " + location->scheme + "://" + EscapeText(location->Authority());
    return "in another region or at another endpoint";
  }

  Status Refused() const {
    if (Is("InvalidObjectState"))
      return Error(Code::kFailedPrecondition,
                   "the object is archived: restore it before it is read{}", Said());
    if (Is("RequestTimeTooSkewed") || Is("RequestInTheFuture"))
      return Error(Code::kPermissionDenied, "this machine's clock is wrong: set it, best by NTP{}",
                   Said());
    for (const Refusal& refusal : kRefusals)
      if (Is(refusal.code))
        return Error(Code::kPermissionDenied, "the credentials were refused: {}; {}{}",
                     refusal.advice, WhoseCredentials(), Said());
    if ((r_.status != 401 && r_.status != 403) || IsOneOf(e_.code, kFull)) return OkStatus();
    VerbWords words = WordsFor(a_.verb);
    std::string more;
    if (a_.verb == S3Verb::kHead || a_.verb == S3Verb::kGet)
      more =
          "; S3 also says so of a key that is not there to those who may not list (s3:ListBucket)";
    if (a_.verb == S3Verb::kList)
      more = "; objects whose keys are known (a manifest, an index) may still be readable";
    return Error(Code::kPermissionDenied, "{} is not allowed: it needs {} on {}; {}{}{}",
                 words.doing, words.permission, Bucket(), WhoseCredentials(), more, Said());
  }

  Status Other() const {
    if (IsOneOf(e_.code, kDamaged))
      return Error(Code::kDataLoss, "the body was damaged on its way to the server{}", Said());
    if (IsOneOf(e_.code, kFull) || r_.status == 507)
      return Error(Code::kResourceExhausted, "the store is full, or a quota is{}", Said());
    if (Is("InvalidPart") || Is("InvalidPartOrder"))
      return Error(Code::kFailedPrecondition, "a part of the upload is missing or was replaced{}",
                   Said());
    if (Is("NotImplemented") || Is("MethodNotAllowed") || r_.status == 501 || r_.status == 405)
      return Error(Code::kUnimplemented, "the server cannot do this{}", Said());
    if (IsOneOf(e_.code, kWrongArguments) || r_.status == 400)
      return Error(Code::kInvalidArgument, "the server does not take the request{}", Said());
    return Error(Code::kFailedPrecondition, "the server refused{}", Said());
  }

  const S3Attempt& a_;
  const net::HttpResponse& r_;
  const S3Error& e_;
};

}  // namespace

Status S3Failure(const S3Attempt& attempt, const net::HttpResponse& response,
                 const S3Error& error) {
  return FailureReader(attempt, response, error).Read();
}

bool NeedsOtherCredentials(std::string_view code) {
  constexpr std::array<std::string_view, 7> kCodes = {
      "ExpiredToken", "ExpiredTokenException", "RequestExpired",    "TokenRefreshRequired",
      "InvalidToken", "InvalidClientTokenId",  "InvalidAccessKeyId"};
  return IsOneOf(code, kCodes);
}

}  // namespace headrace::object
