/* What a failed request means: whether it is worth another try, and what people can do about it. */
#include "state/objects/s3.h"

#include "core/mem.h"
#include "core/quote.h"

#include <stdlib.h>

/* --- Judging --- */

/* Codes of answers that may be others next time, whatever their status. Four of them: the server saw other bytes than were sent. */
static const char *const passing[] = {
    "RequestTimeout",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "OperationAborted",
    "InternalError",
    "ServiceUnavailable",
    "BadDigest",
    "XAmzContentSHA256Mismatch",
    "IncompleteBody",
    "InvalidDigest",
    "ConditionalRequestConflict",
};

static bool is_passing(const struct s3_call *call)
{
    if (call->status == 408 || call->status == 429 || (call->status >= 500 && call->status != 501))
        return true;
    for (size_t i = 0; i < ARRAY_COUNT(passing); i++)
        if (str_is(call->document.code, passing[i]))
            return true;
    return false;
}

struct s3_failure s3_judge(const struct s3_call *call, struct arena *arena)
{
    struct str code = call->document.code, message = call->document.message;
    struct s3_failure failure = {.kind = is_passing(call) ? S3_AGAIN : S3_REFUSED};
    int shown = (int)MIN(message.length, (size_t)S3_WHY_TEXT);
    if (code.length == 0)
        failure.what = arena_printf(arena, "status %ld", call->status);
    else
        failure.what =
            arena_printf(arena, "status %ld, %.*s: %.*s", call->status, (int)MIN(code.length, (size_t)64),
                         code.data, shown, message.data == NULL ? "" : message.data);
    if (call->status == 416 && call->has_range) {
        failure.kind = S3_DAMAGED;
        failure.what = "the object ends before";
    }
    return failure;
}

/* --- Saying --- */

static const struct {
    const char *code;
    const char *hint;
} hints[] = {
    {"NoSuchBucket", "make the bucket, or correct the URL"},
    {"InvalidBucketName", "correct the URL: `s3://bucket/prefix`"},
    {"InvalidAccessKeyId", "the store does not know AWS_ACCESS_KEY_ID: start leat with a key of this store"},
    {"SignatureDoesNotMatch",
     "AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS_KEY_ID, or AWS_REGION is another region's"},
    {"ExpiredToken", "AWS_SESSION_TOKEN has expired: start leat with fresh keys"},
    {"TokenRefreshRequired", "AWS_SESSION_TOKEN has expired: start leat with fresh keys"},
    {"InvalidToken", "AWS_SESSION_TOKEN does not belong to AWS_ACCESS_KEY_ID"},
    {"AuthorizationHeaderMalformed", "set AWS_REGION to the bucket's region"},
    {"PermanentRedirect",
     "set AWS_REGION to the bucket's region, or AWS_ENDPOINT_URL_S3 to the store's address"},
    {"RequestTimeTooSkewed",
     "set this machine's clock: it differs from the store's by more than the store allows"},
    {"AccessDenied",
     "the key needs s3:ListBucket, s3:ListBucketMultipartUploads, s3:GetObject, s3:PutObject, s3:DeleteObject "
     "and s3:AbortMultipartUpload for the bucket and what is below the prefix"},
};

static const char *hint_of(const struct s3_call *call, const struct s3_failure *failure)
{
    if (failure->kind == S3_DAMAGED || failure->kind == S3_WRONG)
        return "take another checkpoint; the object was cut or changed, or something between leat and the store changes bytes";
    for (size_t i = 0; i < ARRAY_COUNT(hints); i++)
        if (str_is(call->document.code, hints[i].code))
            return hints[i].hint;
    if (call->status >= 300 && call->status < 400)
        return "set AWS_REGION to the bucket's region, or AWS_ENDPOINT_URL_S3 to the store's address";
    if (call->status == 401 || call->status == 403)
        return "look at the rights of AWS_ACCESS_KEY_ID for this bucket, and at this machine's clock";
    if (call->status == 0)
        return "is the store up, and AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL) its address?";
    return call->status >= 500 || call->status == 429
               ? "the store is down or overloaded; leat tries again with the next request"
               : "does the store speak S3, and is AWS_ENDPOINT_URL_S3 its address?";
}

enum objects_result s3_say(const struct objects *objects, const struct s3_call *call,
                           const struct s3_failure *failure, uint32_t tries, struct diag_list *diags)
{
    const struct s3 *s3 = objects->store;
    bool is_damaged = failure->kind == S3_WRONG || failure->kind == S3_DAMAGED;
    char *what = text_without(text_without(text_without(mem_strdup(failure->what), s3->token), s3->secret),
                              s3->access);
    char *count = tries > 1 ? mem_printf(" (%u tries)", tries) : mem_strdup("");
    bool has_name = call->name.length > 0;
    struct diag *d = diag_error(diags, is_damaged ? DIAG_STORE_DAMAGED : DIAG_STORE_FAILED, (struct span){0},
                                "`%s`: cannot %s%s%.*s%s: %s%s", objects->url, call->purpose,
                                has_name ? " `" : "", STR_ARGS(call->name), has_name ? "`" : "", what, count);
    diag_hint(diags, d, "%s", hint_of(call, failure));
    free(what);
    free(count);
    return OBJECTS_FAILED;
}
