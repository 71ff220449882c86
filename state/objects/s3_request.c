/* One request: signed, sent by libcurl, its answer checked, and tried again where that may help. */
#include "core/base64.h"
#include "core/hex.h"
#include "core/mem.h"
#include "core/os.h"
#include "state/objects/s3.h"

#include <stdlib.h>
#include <strings.h>

enum { CONNECT_MS = 5000, ERROR_BYTES_MAX = 64 << 10 };
/* A clock that differs by less is not what a request was refused for: stores allow 15 minutes. */
#define SKEW_US (5 * US_PER_MINUTE)

/* A try: what libcurl's callbacks fill. */
struct attempt {
    struct objects *objects;
    struct s3 *s3;
    struct s3_call *call;
    struct arena *arena;
    size_t before;             /* bytes of call->out before this try */
    struct byte_buffer answer; /* the body, where it does not go to call->out */
    bool is_too_long;
};

void s3_add_parameter(struct s3_call *call, const char *name, struct str value)
{
    leat_assert(call->parameters_count < S3_PARAMETERS_MAX);
    call->parameters[call->parameters_count++] = (struct s3_field){name, value};
}

/* --- The answer --- */

static bool is_good(long status)
{
    return status >= 200 && status < 300;
}

/* Reads "bytes 0-9/100". */
static void read_range(struct s3_call *call, const char *text)
{
    unsigned long long begin, end, total;
    if (sscanf(text, "bytes %llu-%llu/%llu", &begin, &end, &total) == 3) {
        call->range_begin = begin;
        call->range_end = end;
        call->range_total = total;
    }
}

static void read_field(struct s3_call *call, const char *name, const char *value)
{
    if (strcasecmp(name, "etag") == 0) {
        size_t length = strlen(value);
        bool is_quoted = length >= 2 && value[0] == '"' && value[length - 1] == '"';
        snprintf(call->etag, sizeof(call->etag), "%.*s", (int)(is_quoted ? length - 2 : length),
                 value + is_quoted);
    } else if (strcasecmp(name, "content-length") == 0) {
        call->length = strtoull(value, NULL, 10);
    } else if (strcasecmp(name, "content-range") == 0) {
        read_range(call, value);
    } else if (strcasecmp(name, "date") == 0) {
        time_t date = curl_getdate(value, NULL);
        call->date_us = date > 0 ? (int64_t)date * US_PER_SECOND : 0;
    } else if (strcasecmp(name, "x-amz-server-side-encryption") == 0) {
        call->has_own_digest = strcasecmp(value, "AES256") != 0;
    } else if (strcasecmp(name, "x-amz-server-side-encryption-customer-algorithm") == 0) {
        call->has_own_digest = true;
    }
}

static void forget_answer(struct s3_call *call)
{
    call->status = 0;
    call->length = UINT64_MAX;
    call->range_begin = call->range_end = call->range_total = 0;
    call->date_us = 0;
    call->etag[0] = '\0';
    call->has_own_digest = false;
    call->document = (struct s3_document){0};
}

static size_t take_field(char *bytes, size_t size, size_t count, void *user)
{
    struct attempt *attempt = user;
    char line[1024];
    size_t length = size * count;
    snprintf(line, sizeof(line), "%.*s", (int)MIN(length, sizeof(line) - 1), bytes);
    line[strcspn(line, "\r\n")] = '\0';
    if (strncmp(line, "HTTP/", 5) == 0) { /* "100 Continue" may come before the answer */
        forget_answer(attempt->call);
        return length;
    }
    char *colon = strchr(line, ':');
    if (colon != NULL) {
        *colon = '\0';
        read_field(attempt->call, line, colon + 1 + strspn(colon + 1, " \t"));
    }
    return length;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *user)
{
    struct attempt *attempt = user;
    struct s3_call *call = attempt->call;
    size_t length = size * count;
    long status = 0;
    curl_easy_getinfo(attempt->s3->curl, CURLINFO_RESPONSE_CODE, &status);
    if (is_good(status) && call->out != NULL && (status == 206) == call->has_range) {
        attempt->is_too_long = length > attempt->before + call->out_max - call->out->length;
        if (!attempt->is_too_long)
            buffer_append(call->out, bytes, length);
        return attempt->is_too_long ? 0 : length; /* 0 ends the request */
    }
    size_t room =
        (is_good(status) ? (size_t)S3_XML_BYTES_MAX : (size_t)ERROR_BYTES_MAX) - attempt->answer.length;
    buffer_append(&attempt->answer, bytes, MIN(length, room));
    return length;
}

/* libcurl calls it about once a second; another value than 0 ends the request. */
static int look(void *user, curl_off_t a LEAT_UNUSED, curl_off_t b LEAT_UNUSED, curl_off_t c LEAT_UNUSED,
                curl_off_t d LEAT_UNUSED)
{
    const struct attempt *attempt = user;
    return atomic_load(&attempt->objects->is_cancelled);
}

/* --- The request --- */

static void add_field(struct curl_slist **list, const char *name, struct str value)
{
    char *line = mem_printf("%s: %.*s", name, STR_ARGS(value));
    struct curl_slist *longer = curl_slist_append(*list, line);
    leat_assert(longer != NULL);
    *list = longer;
    explicit_bzero(line, strlen(line));
    free(line);
}

/* The fields of the request, signed. md5: of the body; NULL: without the field content-md5. */
static struct curl_slist *make_fields(const struct attempt *attempt, struct str path, struct str query,
                                      const uint8_t *md5)
{
    struct s3 *s3 = attempt->s3;
    const struct s3_call *call = attempt->call;
    char date[S3_DATE_TEXT], payload[S3_SHA256_TEXT];
    struct byte_buffer digest = {0}, signature = {0};
    struct s3_field fields[S3_FIELDS_MAX];
    uint32_t count = 0;
    s3_date(os_wall_us() + s3->clock_us, date);
    s3_sha256(call->body.length == 0 ? "" : call->body.data, call->body.length, payload);
    fields[count++] = (struct s3_field){"host", str_from(s3->host)};
    fields[count++] = (struct s3_field){"x-amz-date", str_from(date)};
    fields[count++] = (struct s3_field){"x-amz-content-sha256", str_from(payload)};
    if (s3->token != NULL)
        fields[count++] = (struct s3_field){"x-amz-security-token", str_from(s3->token)};
    if (md5 != NULL) {
        base64_encode((const char *)md5, S3_MD5_BYTES, &digest);
        fields[count++] = (struct s3_field){"content-md5", {digest.data, digest.length}};
    }
    s3_sign(&(struct s3_signed){call->method, s3->region, path, query, date, payload, fields, count},
            &s3->keys, &signature);
    struct curl_slist *list = NULL;
    for (uint32_t i = 0; i < count; i++)
        add_field(&list, fields[i].name, fields[i].value);
    add_field(&list, "authorization", (struct str){signature.data, signature.length});
    if (call->is_new)
        add_field(&list, "if-none-match", STR("*"));
    add_field(&list, "expect",
              (struct str){0}); /* libcurl would wait a second for "100 Continue", and send a type */
    add_field(&list, "content-type", (struct str){0});
    buffer_free(&digest);
    buffer_free(&signature);
    return list;
}

static void set_method(CURL *curl, const struct s3_call *call, uint64_t got)
{
    char range[64];
    if (strcmp(call->method, "HEAD") == 0) {
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    } else if (strcmp(call->method, "PUT") == 0 || strcmp(call->method, "POST") == 0) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->body.length == 0 ? "" : call->body.data);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.length);
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
    } else {
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
    }
    if (call->has_range) {
        snprintf(range, sizeof(range), "%llu-%llu", (unsigned long long)(call->offset + got),
                 (unsigned long long)(call->offset + call->out_max - 1));
        curl_easy_setopt(curl, CURLOPT_RANGE, range);
    }
}

static void set_up(const struct attempt *attempt, const char *url, const struct curl_slist *fields)
{
    CURL *curl = attempt->s3->curl;
    int64_t stall_s = MAX(INT64_C(1), attempt->objects->options.stall_us / US_PER_SECOND);
    curl_easy_reset(curl); /* its connection stays open */
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fields);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L); /* a signature is good for one address */
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)MIN((int64_t)CONNECT_MS, stall_s * 1000));
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L); /* bytes a second */
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)stall_s);
    curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "leat/" LEAT_VERSION);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, attempt->s3->why);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_field);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, attempt);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, attempt);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, attempt);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    if (attempt->s3->authorities != NULL) {
        curl_easy_setopt(curl, CURLOPT_CAINFO, attempt->s3->authorities);
        curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
    }
}

static void count_bytes(struct attempt *attempt)
{
    curl_off_t up = 0, down = 0;
    curl_easy_getinfo(attempt->s3->curl, CURLINFO_SIZE_UPLOAD_T, &up);
    curl_easy_getinfo(attempt->s3->curl, CURLINFO_SIZE_DOWNLOAD_T, &down);
    atomic_fetch_add(&attempt->objects->bytes_up, (uint64_t)up);
    atomic_fetch_add(&attempt->objects->bytes_down, (uint64_t)down);
    atomic_fetch_add(&attempt->objects->requests, 1);
}

/* got: bytes of the wanted range that an earlier try brought. */
static CURLcode send_request(struct attempt *attempt, const uint8_t *md5, uint64_t got)
{
    struct s3 *s3 = attempt->s3;
    const struct s3_call *call = attempt->call;
    struct byte_buffer path = {0}, query = {0};
    buffer_printf(&path, "%s/", s3->root);
    if (call->name.length > 0) {
        s3_encode(&path, str_from(s3->prefix), true);
        s3_encode(&path, call->name, true);
    }
    s3_query(&query, call->parameters, call->parameters_count);
    char *url =
        mem_printf("%s%.*s%s%.*s", s3->base, (int)path.length, path.data, query.length == 0 ? "" : "?",
                   (int)query.length, query.length == 0 ? "" : query.data);
    struct curl_slist *fields =
        make_fields(attempt, (struct str){path.data, path.length},
                    (struct str){query.length == 0 ? "" : query.data, query.length}, md5);
    set_up(attempt, url, fields);
    set_method(s3->curl, call, got);
    s3->why[0] = '\0';
    CURLcode code = curl_easy_perform(s3->curl);
    curl_easy_getinfo(s3->curl, CURLINFO_RESPONSE_CODE, &attempt->call->status);
    count_bytes(attempt);
    curl_slist_free_all(fields);
    free(url);
    buffer_free(&path);
    buffer_free(&query);
    return code;
}

/* --- Checks of a good answer; NULL: it is good --- */

/* The ETag as an MD5 digest; false where it is none. */
static bool etag_md5(const struct s3_call *call, uint8_t digest[S3_MD5_BYTES])
{
    if (call->has_own_digest || strlen(call->etag) != 2 * S3_MD5_BYTES)
        return false;
    for (size_t i = 0; i < S3_MD5_BYTES; i++) {
        int high = hex_value(call->etag[2 * i]), low = hex_value(call->etag[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        digest[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

static const char *check_range(const struct s3_call *call, size_t got)
{
    if (call->status != 206)
        return "a part of the object was asked for, and another answer came";
    if (call->range_total == 0 || call->range_begin != call->offset + got)
        return "another part of the object came than was asked for";
    return NULL;
}

/* md5: of what was sent; NULL: nothing, or it is not known. */
static const char *check_bytes(const struct attempt *attempt, const uint8_t *md5)
{
    const struct s3_call *call = attempt->call;
    uint8_t expected[S3_MD5_BYTES], found[S3_MD5_BYTES];
    if (!etag_md5(call, expected))
        return NULL;
    if (md5 != NULL && strcmp(call->method, "PUT") == 0 && memcmp(md5, expected, S3_MD5_BYTES) != 0)
        return "the store's digest (MD5) is not that of what was sent";
    if (call->out == NULL || call->has_range)
        return NULL;
    size_t length = call->out->length - attempt->before;
    if (s3_md5(length == 0 ? "" : call->out->data + attempt->before, length, found) &&
        memcmp(found, expected, S3_MD5_BYTES) != 0)
        return "the bytes that came do not have the digest (MD5) that the store says";
    return NULL;
}

/* Reads the body as XML. NULL: it is what is expected, or nothing is. */
static const char *read_document(struct attempt *attempt)
{
    struct s3_call *call = attempt->call;
    struct str xml = {attempt->answer.data, attempt->answer.length};
    const char *why = NULL;
    while (xml.length > 0 && strchr(" \t\r\n", xml.data[0]) != NULL) { /* sent while a store is at work */
        xml.data++;
        xml.length--;
    }
    if (call->expected == S3_ROOT_OTHER && is_good(call->status))
        return NULL;
    if (xml.length == 0 || !s3_xml_read(xml, attempt->arena, &call->document, &why))
        return why == NULL ? "the answer is empty"
                           : arena_printf(attempt->arena, "the answer is damaged: %s", why);
    return call->document.root == call->expected ? NULL : "the answer is another one";
}

/* --- Trying --- */

static bool is_hopeless(CURLcode code)
{
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
           code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL ||
           code == CURLE_SSL_CERTPROBLEM || code == CURLE_SSL_ISSUER_ERROR;
}

/* No whole answer came. */
static struct s3_failure judge_curl(const struct attempt *attempt, CURLcode code)
{
    const char *why = attempt->s3->why[0] != '\0' ? attempt->s3->why : curl_easy_strerror(code);
    if (attempt->is_too_long)
        return (struct s3_failure){
            S3_DAMAGED,
            arena_printf(attempt->arena, "expected at most %zu bytes, found more", attempt->call->out_max)};
    attempt->call->status = is_good(attempt->call->status) ? 0 : attempt->call->status;
    return (struct s3_failure){is_hopeless(code) ? S3_REFUSED : S3_AGAIN, arena_strdup(attempt->arena, why)};
}

enum tried { TRIED_GOOD, TRIED_MISSING, TRIED_FAILED };

static bool is_missing(const struct s3_call *call)
{
    struct str code = call->document.code;
    for (size_t i = 0; i < ARRAY_COUNT(call->missing_codes); i++)
        if (call->missing_codes[i] != NULL && str_is(code, call->missing_codes[i]))
            return true;
    if (call->is_new && call->status == 412)
        return true;
    return call->may_miss && call->status == 404 && (code.length == 0 || str_is(code, "NoSuchKey"));
}

static enum tried judge_answer(struct attempt *attempt, const uint8_t *md5, size_t got,
                               struct s3_failure *failure)
{
    struct s3_call *call = attempt->call;
    const char *why = read_document(attempt);
    if (!is_good(call->status)) {
        *failure = s3_judge(call, attempt->arena);
        return is_missing(call) ? TRIED_MISSING : TRIED_FAILED;
    }
    if (why == NULL && call->has_range)
        why = check_range(call, got);
    if (why == NULL && call->has_range && call->range_total < call->offset + call->out_max) {
        *failure =
            (struct s3_failure){S3_DAMAGED, arena_printf(attempt->arena, "the object has only %llu bytes",
                                                         (unsigned long long)call->range_total)};
        return TRIED_FAILED;
    }
    if (why == NULL)
        why = check_bytes(attempt, md5);
    if (why == NULL && strcmp(call->method, "HEAD") == 0 && call->length == UINT64_MAX)
        why = "the answer has no size";
    if (why == NULL && call->has_range && call->out->length - attempt->before < call->out_max)
        why = "the answer is shorter than it says";
    if (why == NULL)
        return TRIED_GOOD;
    if (call->document.root ==
        S3_ROOT_ERROR) /* of a request that took long: its status was sent before it failed */
        *failure = (struct s3_failure){S3_AGAIN, s3_judge(call, attempt->arena).what};
    else
        *failure = (struct s3_failure){S3_WRONG, why};
    return TRIED_FAILED;
}

/* One try. before: bytes of call->out before the first one. */
static enum tried attempt_once(struct objects *objects, struct s3_call *call, struct arena *arena,
                               size_t before, const uint8_t *md5, struct s3_failure *failure)
{
    struct attempt attempt = {
        .objects = objects, .s3 = objects->store, .call = call, .arena = arena, .before = before};
    forget_answer(call);
    if (call->out != NULL && !call->has_range)
        call->out->length = before;
    size_t got = call->has_range ? call->out->length - before : 0;
    int error = failpoint("objects.request");
    if (error != 0) {
        *failure = (struct s3_failure){S3_AGAIN, strerror(error)};
        return TRIED_FAILED;
    }
    CURLcode code = send_request(&attempt, md5, got);
    enum tried tried = TRIED_FAILED;
    if (code == CURLE_OK)
        tried = judge_answer(&attempt, md5, got, failure);
    else
        *failure = judge_curl(&attempt, code);
    if (tried != TRIED_GOOD && failure->kind == S3_WRONG && call->has_range)
        call->out->length = before; /* bytes of a wrong answer are no beginning of a right one */
    buffer_free(&attempt.answer);
    return tried;
}

/* Whether the request was refused for its time: takes over the store's clock. A HEAD's answer has no code. */
static bool correct_clock(struct s3 *s3, const struct s3_call *call)
{
    int64_t behind = call->date_us - (os_wall_us() + s3->clock_us);
    bool is_named =
        str_is(call->document.code, "RequestTimeTooSkewed") || str_is(call->document.code, "RequestExpired");
    if (call->date_us == 0 || (call->status != 403 && call->status != 400) ||
        (!is_named && call->document.code.length > 0) || (behind < SKEW_US && behind > -SKEW_US))
        return false;
    s3->clock_us += behind;
    return true;
}

enum objects_result s3_perform(struct objects *objects, struct s3_call *call, struct arena *arena,
                               struct diag_list *diags)
{
    size_t before = call->out == NULL ? 0 : call->out->length;
    int64_t pause_us = objects->options.pause_us;
    bool has_corrected = false;
    uint8_t md5[S3_MD5_BYTES];
    bool has_md5 = call->body.length > 0 && s3_md5(call->body.data, call->body.length, md5);
    for (uint32_t tries = 1;; tries++) {
        struct s3_failure failure = {0};
        enum tried tried = attempt_once(objects, call, arena, before, has_md5 ? md5 : NULL, &failure);
        if (tried == TRIED_GOOD)
            return OBJECTS_DONE;
        if (tried == TRIED_MISSING)
            return OBJECTS_MISSING;
        bool again = failure.kind == S3_AGAIN || failure.kind == S3_WRONG;
        bool is_late = !has_corrected && correct_clock(objects->store, call);
        has_corrected = has_corrected || is_late;
        if (!is_late && (!again || tries >= objects->options.tries) && !atomic_load(&objects->is_cancelled))
            return s3_say(objects, call, &failure, tries, diags);
        if (!objects_pause(objects, is_late ? 0 : pause_us)) {
            objects_say_cancelled(objects, diags);
            return OBJECTS_FAILED;
        }
        pause_us = is_late ? pause_us : MIN(pause_us * 2, objects->options.pause_longest_us);
        atomic_fetch_add(&objects->retries, 1);
    }
}
