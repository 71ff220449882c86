#include "connectors/kafka/token.h"

#include "connectors/kafka/errors.h"

#include "core/base64.h"
#include "core/mem.h"
#include "core/os.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKEN_BYTES_MAX = 64 << 10, SUBJECT_ROOM = 256 };
static const double ends_s_max = 1e12; /* rejects absurd times */

/* Decodes base64url without padding in place. Returns the length; SIZE_MAX: not base64url. `text` has room
 * for 3 more bytes. */
static size_t decode_part(char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        text[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
    while (length % 4 != 0)
        text[length++] = '=';
    return base64_decode(text, length, text);
}

bool kafka_token_parse(struct str token, int64_t *ends_ms, char *subject, size_t room, const char **why)
{
    const char *first = memchr(token.data, '.', token.length);
    const char *begin = first == NULL ? NULL : first + 1;
    const char *end = begin == NULL ? NULL : memchr(begin, '.', token.length - (size_t)(begin - token.data));
    *why = "it is not a JSON web token";
    if (end == NULL)
        return false;
    size_t length = (size_t)(end - begin);
    char *part = mem_alloc(length + 4);
    memcpy(part, begin, length);
    size_t bytes = decode_part(part, length);
    json_t *claims = bytes == SIZE_MAX ? NULL : json_loadb(part, bytes, 0, NULL);
    free(part);
    const json_t *ends = json_object_get(claims, "exp"), *sub = json_object_get(claims, "sub");
    double ends_s = json_number_value(ends);
    bool is_good = json_is_number(ends) && json_is_string(sub);
    if (claims != NULL && !is_good)
        *why = "it lacks `exp`, the time when it expires, or `sub`, its subject";
    if (is_good && !(ends_s >= 0 && ends_s <= ends_s_max)) {
        is_good = false;
        *why = "its `exp` is not a time in seconds since 1970";
    }
    if (is_good) {
        *ends_ms = (int64_t)(ends_s * 1000);
        snprintf(subject, room, "%s", json_string_value(sub));
    }
    json_decref(claims);
    return is_good;
}

void kafka_token_refresh(rd_kafka_t *client, const char *config LEAT_UNUSED, void *opaque)
{
    struct kafka_errors *errors = opaque;
    struct str path = kafka_errors_client(errors)->security.token_file;
    char *name = mem_str(path), *data = NULL, subject[SUBJECT_ROOM], why[512] = "";
    size_t bytes = 0;
    int64_t ends_ms = 0;
    const char *reason = NULL;
    int error = os_read_file(name, TOKEN_BYTES_MAX, &data, &bytes);
    while (error == 0 && bytes > 0 && (data[bytes - 1] == '\n' || data[bytes - 1] == '\r'))
        bytes--;
    if (error != 0) {
        snprintf(why, sizeof(why), "the token in `%s` cannot be read: %s", name, strerror(error));
    } else if (!kafka_token_parse((struct str){data, bytes}, &ends_ms, subject, sizeof(subject), &reason)) {
        snprintf(why, sizeof(why), "the token in `%s` cannot be used: %s", name, reason);
    } else {
        char *token = mem_str((struct str){data, bytes});
        char text[256] = "";
        if (rd_kafka_oauthbearer_set_token(client, token, ends_ms, subject, NULL, 0, text, sizeof(text)) !=
            RD_KAFKA_RESP_ERR_NO_ERROR)
            snprintf(why, sizeof(why), "the token in `%s` cannot be used: %s", name,
                     ends_ms <= os_wall_us() / 1000 ? "it has expired" : text);
        explicit_bzero(token, bytes);
        free(token);
    }
    if (why[0] != '\0') {
        kafka_errors_token(errors, why);
        rd_kafka_oauthbearer_set_token_failure(client, why);
    }
    if (data != NULL)
        explicit_bzero(data, bytes);
    free(data);
    free(name);
}
