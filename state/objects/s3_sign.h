/* Signatures of requests to S3: AWS Signature Version 4, and the encodings that it is made of. libcurl's own signing neither sorts
 * the query nor tells the server the body's digest. Any thread. */
#ifndef LEAT_STATE_OBJECTS_S3_SIGN_H
#define LEAT_STATE_OBJECTS_S3_SIGN_H

#include "core/buffer.h"

enum {
    S3_SHA256_BYTES = 32,
    S3_SHA256_TEXT = 2 * S3_SHA256_BYTES + 1, /* hexadecimal, with a NUL */
    S3_MD5_BYTES = 16,
    S3_MD5_TEXT = 2 * S3_MD5_BYTES + 1,
    S3_DATE_TEXT = 17, /* "20130524T000000Z" with a NUL */
    S3_FIELDS_MAX = 12,
    S3_PARAMETERS_MAX = 8,
};

struct s3_keys {
    const char *access, *secret;
    const char *token; /* of a session; NULL: none */
};

/* A header field with a name in small letters, or a parameter of a query as it is before encoding. */
struct s3_field {
    const char *name;
    struct str value;
};

struct s3_signed {
    const char *method, *region;
    struct str path;     /* encoded, from its first slash */
    struct str query;    /* as s3_query writes it */
    const char *date;    /* S3_DATE_TEXT; also the field x-amz-date */
    const char *payload; /* the body's SHA-256 in hexadecimal; also the field x-amz-content-sha256 */
    const struct s3_field *fields; /* all that are signed, in any order; each name once */
    uint32_t count;                /* at most S3_FIELDS_MAX */
};

/* Appends the value of the field `authorization`. */
void s3_sign(const struct s3_signed *what, const struct s3_keys *keys, struct byte_buffer *out);

/* Appends the text percent-encoded: all but letters, digits and `-._~`, and slashes where they are kept. */
void s3_encode(struct byte_buffer *out, struct str text, bool keeps_slashes);
/* Appends the parameters encoded, sorted by name, joined by `&`. At most S3_PARAMETERS_MAX; each name once. */
void s3_query(struct byte_buffer *out, const struct s3_field *parameters, uint32_t count);
/* Writes the UTC time `us` (microseconds since 1970). */
void s3_date(int64_t us, char text[S3_DATE_TEXT]);

void s3_sha256(const void *data, size_t bytes, char text[S3_SHA256_TEXT]);
/* False: this machine's OpenSSL refuses MD5 (FIPS); then nothing is checked by it. */
bool s3_md5(const void *data, size_t bytes, uint8_t digest[S3_MD5_BYTES]);

#endif
