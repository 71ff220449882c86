#include "state/objects/s3_sign.h"

#include "core/hex.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <time.h>

enum { DAY_TEXT = 9 }; /* "20130524" with a NUL */

/* --- Digests --- */

void s3_sha256(const void *data, size_t bytes, char text[S3_SHA256_TEXT])
{
    uint8_t digest[S3_SHA256_BYTES];
    leat_assert(EVP_Digest(data, bytes, digest, NULL, EVP_sha256(), NULL) == 1);
    hex_text(digest, sizeof(digest), text);
}

bool s3_md5(const void *data, size_t bytes, uint8_t digest[S3_MD5_BYTES])
{
    return EVP_Digest(data, bytes, digest, NULL, EVP_md5(), NULL) == 1;
}

static void hmac(const void *key, size_t key_bytes, struct str data, uint8_t digest[S3_SHA256_BYTES])
{
    leat_assert(HMAC(EVP_sha256(), key, (int)key_bytes, (const unsigned char *)data.data, data.length, digest,
                     NULL) != NULL);
}

/* --- Encodings --- */

void s3_encode(struct byte_buffer *out, struct str text, bool keeps_slashes)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.data[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                        c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keeps_slashes);
        char escape[] = {'%', digits[c >> 4], digits[c & 15]};
        if (is_plain)
            buffer_append(out, &c, 1);
        else
            buffer_append(out, escape, sizeof(escape));
    }
}

/* Names are ASCII of leat's own, without characters that are encoded: so they sort as their encodings do. */
static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct s3_field *const *)a)->name, (*(const struct s3_field *const *)b)->name);
}

static void sort_fields(const struct s3_field *fields, uint32_t count, const struct s3_field **sorted)
{
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = &fields[i];
    qsort(sorted, count, sizeof(*sorted), by_name);
}

void s3_query(struct byte_buffer *out, const struct s3_field *parameters, uint32_t count)
{
    const struct s3_field *sorted[S3_PARAMETERS_MAX];
    leat_assert(count <= S3_PARAMETERS_MAX);
    sort_fields(parameters, count, sorted);
    for (uint32_t i = 0; i < count; i++) {
        buffer_printf(out, "%s%s=", i == 0 ? "" : "&", sorted[i]->name);
        s3_encode(out, sorted[i]->value, false);
    }
}

void s3_date(int64_t us, char text[S3_DATE_TEXT])
{
    time_t seconds = (time_t)(us / US_PER_SECOND);
    struct tm utc;
    leat_assert(gmtime_r(&seconds, &utc) != NULL &&
                strftime(text, S3_DATE_TEXT, "%Y%m%dT%H%M%SZ", &utc) == S3_DATE_TEXT - 1);
}

/* --- The signature --- */

static void append_names(struct byte_buffer *out, const struct s3_field **sorted, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        buffer_printf(out, "%s%s", i == 0 ? "" : ";", sorted[i]->name);
}

/* SHA-256 of the canonical request. */
static void digest_request(const struct s3_signed *what, const struct s3_field **sorted,
                           char text[S3_SHA256_TEXT])
{
    struct byte_buffer canonical = {0};
    buffer_printf(&canonical, "%s\n%.*s\n%.*s\n", what->method, STR_ARGS(what->path), STR_ARGS(what->query));
    for (uint32_t i = 0; i < what->count; i++)
        buffer_printf(&canonical, "%s:%.*s\n", sorted[i]->name, STR_ARGS(sorted[i]->value));
    buffer_append(&canonical, "\n", 1);
    append_names(&canonical, sorted, what->count);
    buffer_printf(&canonical, "\n%s", what->payload);
    s3_sha256(canonical.data, canonical.length, text);
    buffer_free(&canonical);
}

/* The day's key: of the secret, the day, the region, and the service. */
static void derive_key(const struct s3_signed *what, const char *day, const char *secret,
                       uint8_t key[S3_SHA256_BYTES])
{
    struct byte_buffer first = {0};
    buffer_printf(&first, "AWS4%s", secret);
    hmac(first.data, first.length, str_from(day), key);
    explicit_bzero(first.data, first.length);
    buffer_free(&first);
    hmac(key, S3_SHA256_BYTES, str_from(what->region), key);
    hmac(key, S3_SHA256_BYTES, STR("s3"), key);
    hmac(key, S3_SHA256_BYTES, STR("aws4_request"), key);
}

void s3_sign(const struct s3_signed *what, const struct s3_keys *keys, struct byte_buffer *out)
{
    const struct s3_field *sorted[S3_FIELDS_MAX];
    char digest[S3_SHA256_TEXT], signature[S3_SHA256_TEXT], day[DAY_TEXT];
    uint8_t key[S3_SHA256_BYTES];
    struct byte_buffer text = {0};
    leat_assert(what->count <= S3_FIELDS_MAX);
    sort_fields(what->fields, what->count, sorted);
    snprintf(day, sizeof(day), "%.8s", what->date);
    digest_request(what, sorted, digest);
    buffer_printf(&text, "AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n%s", what->date, day, what->region,
                  digest);
    derive_key(what, day, keys->secret, key);
    hmac(key, sizeof(key), (struct str){text.data, text.length}, key);
    hex_text(key, sizeof(key), signature);
    explicit_bzero(key, sizeof(key));
    buffer_free(&text);
    buffer_printf(out, "AWS4-HMAC-SHA256 Credential=%s/%s/%s/s3/aws4_request,SignedHeaders=", keys->access,
                  day, what->region);
    append_names(out, sorted, what->count);
    buffer_printf(out, ",Signature=%s", signature);
}
