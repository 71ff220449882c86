/* One request: sent to one endpoint after the other until it is answered, by its deadline.
 *
 * A read goes to the next endpoint whatever became of it. A write goes on only if nothing of it was sent, or etcd said that it
 * did not happen. Its bytes go through a callback that cannot go back: libcurl sends a request again by itself when a
 * connection that had been in use turns out to be closed, and a txn that was done twice is answered by "refused". */
#include "cluster/etcd_internal.h"

#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>
#include <time.h>

enum { CONNECT_MS = 2000, PAUSE_FIRST_US = 20000, PAUSE_MOST_US = 250000, TRY_LEAST_US = 50000 };

/* A try: what libcurl's callbacks fill. */
struct attempt {
    const struct etcd *etcd;
    const char *request;
    size_t length, sent;
    bool is_local;
    struct byte_buffer answer;
};

static size_t give_body(char *out, size_t size, size_t count, void *user)
{
    struct attempt *attempt = user;
    size_t bytes = MIN(size * count, attempt->length - attempt->sent);
    memcpy(out, attempt->request + attempt->sent, bytes);
    attempt->sent += bytes;
    return bytes;
}

/* Going back to the first byte would be sending a second time. */
static int seek_body(void *user, curl_off_t offset, int origin)
{
    const struct attempt *attempt = user;
    return origin == SEEK_SET && offset == 0 && attempt->sent == 0 ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *user)
{
    struct attempt *attempt = user;
    size_t length = size * count;
    if (length > ETCD_ANSWER_BYTES_MAX - attempt->answer.length)
        return 0; /* ends the request: CURLE_WRITE_ERROR */
    buffer_append(&attempt->answer, bytes, length);
    return length;
}

/* libcurl calls it about once a second; another value than 0 ends the request. */
static int look(void *user, curl_off_t a LEAT_UNUSED, curl_off_t b LEAT_UNUSED, curl_off_t c LEAT_UNUSED,
                curl_off_t d LEAT_UNUSED)
{
    const struct etcd *etcd = user;
    return atomic_load(&etcd->must_stop);
}

static void add_field(struct curl_slist **list, const char *field)
{
    struct curl_slist *longer = curl_slist_append(*list, field);
    leat_assert(longer != NULL);
    *list = longer;
}

struct curl_slist *etcd_set_up(struct etcd *etcd, CURL *curl, const char *path, bool is_local)
{
    struct curl_slist *fields = NULL;
    char *url = mem_printf("%s://%s/v3/%s", etcd->authority == NULL ? "http" : "https",
                           etcd->endpoints[etcd->current], path);
    curl_easy_reset(curl); /* its connections stay open */
    curl_easy_setopt(curl, CURLOPT_URL, url);
    free(url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, etcd->authority == NULL ? "http" : "https");
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*"); /* whatever the environment says */
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPIDLE, 15L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPINTVL, 5L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "leat/" LEAT_VERSION);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, etcd);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    if (etcd->authority != NULL) {
        curl_easy_setopt(curl, CURLOPT_CAINFO, etcd->authority);
        curl_easy_setopt(curl, CURLOPT_CAPATH, NULL); /* else the system's authorities are believed, too */
    }
    if (etcd->certificate != NULL)
        curl_easy_setopt(curl, CURLOPT_SSLCERT, etcd->certificate);
    if (etcd->key != NULL)
        curl_easy_setopt(curl, CURLOPT_SSLKEY, etcd->key);
    add_field(&fields, "content-type: application/json");
    add_field(&fields, "expect:"); /* libcurl would wait a second for "100 Continue" */
    if (!is_local)
        add_field(&fields, "grpc-metadata-hasleader: true"); /* a member without a leader says so, at once */
    if (etcd->token != NULL) {
        char *field = mem_printf("authorization: %s", etcd->token);
        add_field(&fields, field);
        explicit_bzero(field, strlen(field));
        free(field);
    }
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fields);
    return fields;
}

static CURLcode transfer(struct etcd *etcd, const char *path, int64_t left_us, struct attempt *attempt,
                         long *status, char why[CURL_ERROR_SIZE])
{
    CURL *curl = etcd->curl;
    struct curl_slist *fields = etcd_set_up(etcd, curl, path, attempt->is_local);
    int64_t left_ms = MAX(INT64_C(1), left_us / 1000);
    why[0] = '\0';
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)left_ms);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)MIN((int64_t)CONNECT_MS, MAX(left_ms / etcd->endpoints_count, INT64_C(1))));
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)attempt->length);
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, give_body);
    curl_easy_setopt(curl, CURLOPT_READDATA, attempt);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, seek_body);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, attempt);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, attempt);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, status);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, NULL);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(fields);
    return code;
}

/* One try at the current endpoint. call->answer: an object, or NULL after *failure. */
static void try_once(struct etcd *etcd, struct etcd_call *call, const char *request, int64_t left_us,
                     struct etcd_failure *failure)
{
    struct attempt attempt = {
        .etcd = etcd, .request = request, .length = strlen(request), .is_local = call->is_local};
    char why[CURL_ERROR_SIZE];
    long status = 0;
    call->answer = NULL;
    CURLcode code = transfer(etcd, call->path, left_us, &attempt, &status, why);
    if (code != CURLE_OK) {
        etcd_judge_curl(code, why, attempt.sent > 0, failure);
        buffer_free(&attempt.answer);
        return;
    }
    json_t *json = json_loadb(attempt.answer.length == 0 ? "" : attempt.answer.data, attempt.answer.length,
                              JSON_REJECT_DUPLICATES, NULL);
    /* An error of a stream stands within the object, at status 200. */
    if (status == 200 && json_is_object(json) && json_object_get(json, "error") == NULL)
        call->answer = json_incref(json);
    else
        etcd_judge(json, (struct str){attempt.answer.data, attempt.answer.length}, status, failure);
    json_decref(json);
    buffer_free(&attempt.answer);
}

/* --- Logging in --- */

void etcd_forget_token(struct etcd *etcd)
{
    if (etcd->token != NULL)
        explicit_bzero(etcd->token, strlen(etcd->token));
    free(etcd->token);
    etcd->token = NULL;
}

bool etcd_log_in(struct etcd *etcd, int64_t left_us, struct etcd_failure *failure)
{
    if (etcd->user == NULL || etcd->token != NULL)
        return true;
    json_t *request = json_pack("{s:s, s:s}", "name", etcd->user, "password", etcd->password);
    struct etcd_call call = {.path = "auth/authenticate"};
    leat_assert(request != NULL);
    char *text = json_dumps(request, JSON_COMPACT);
    json_decref(request);
    try_once(etcd, &call, text, left_us, failure);
    explicit_bzero(text, strlen(text));
    free(text);
    if (call.answer == NULL) {
        failure->is_proof = true; /* of the request that was to follow */
        return false;
    }
    const char *token = json_string_value(json_object_get(call.answer, "token"));
    bool is_good =
        token != NULL && token[0] != '\0' && strlen(token) <= 4096 && strpbrk(token, "\r\n") == NULL;
    if (is_good)
        etcd->token = mem_strdup(token);
    else
        *failure = (struct etcd_failure){ETCD_BAD_ANSWER, true, "a login without a token"};
    json_decref(call.answer);
    return is_good;
}

/* --- Trying --- */

/* Whether another endpoint, or the same a little later, may do better. */
static bool is_worth_another_try(const struct etcd_call *call, const struct etcd_failure *failure)
{
    if (!failure->is_proof && !call->is_read)
        return false;
    switch (failure->error) {
    case ETCD_UNREACHABLE:
    case ETCD_TLS:
    case ETCD_NO_ANSWER:
    case ETCD_BAD_ANSWER:
    case ETCD_NO_LEADER:
    case ETCD_TIMED_OUT:
    case ETCD_BUSY: return true;
    default: return false;
    }
}

/* The time of one try: a read leaves time for the other endpoints. */
static int64_t share(const struct etcd *etcd, const struct etcd_call *call, uint32_t tries, int64_t left_us)
{
    uint32_t others = tries < etcd->endpoints_count ? etcd->endpoints_count - tries : 1;
    return call->is_read ? MAX(left_us / others, MIN(left_us, US_PER_SECOND / 4)) : left_us;
}

static void pause_for(int64_t us)
{
    const struct timespec rest = {.tv_sec = us / US_PER_SECOND, .tv_nsec = us % US_PER_SECOND * 1000};
    nanosleep(&rest, NULL);
}

/* Tries until there is an answer, or none is to be had. */
static void try_all(struct etcd *etcd, struct etcd_call *call, const char *request,
                    struct etcd_failure *failure)
{
    int64_t until = time_add(os_monotonic_us(), etcd->request_us), left_us = etcd->request_us;
    bool is_new_token = false;
    int64_t pause_us = PAUSE_FIRST_US;
    for (uint32_t tries = 0; !atomic_load(&etcd->must_stop); tries++) {
        int64_t mine_us = share(etcd, call, tries, left_us);
        if (etcd_log_in(etcd, mine_us, failure))
            try_once(etcd, call, request, MIN(mine_us, until - os_monotonic_us()), failure);
        if (call->answer != NULL)
            return;
        left_us = until - os_monotonic_us();
        if (failure->error == ETCD_TOKEN && !is_new_token && etcd->user != NULL && left_us > 0) {
            is_new_token = true;
            etcd_forget_token(etcd);
            continue;
        }
        /* A try without time would only turn a proven refusal into an unknown outcome. */
        if (!is_worth_another_try(call, failure) || left_us <= pause_us + TRY_LEAST_US)
            return;
        etcd->current = (etcd->current + 1) % etcd->endpoints_count;
        if ((tries + 1) % etcd->endpoints_count == 0) { /* all have been asked */
            pause_for(pause_us);
            pause_us = MIN(pause_us * 2, (int64_t)PAUSE_MOST_US);
            left_us = until - os_monotonic_us();
        }
    }
    *failure = (struct etcd_failure){ETCD_UNREACHABLE, true, "a client that is being closed"};
}

static void say_and_set(struct etcd *etcd, const struct etcd_call *call, struct etcd_failure *failure,
                        struct etcd_answer *answer, struct diag_list *diags)
{
    answer->error = failure->error;
    answer->outcome = failure->is_proof ? ETCD_REFUSED : ETCD_UNKNOWN;
    if (call->is_read) { /* which changes nothing: there is no answer, or it is etcd's no */
        answer->outcome = is_worth_another_try(call, failure) ? ETCD_UNKNOWN : ETCD_REFUSED;
        failure->is_proof = true;
    }
    etcd_say(etcd, call->purpose, failure, diags);
}

enum etcd_outcome etcd_perform(struct etcd *etcd, struct etcd_call *call, struct etcd_answer *answer,
                               struct diag_list *diags)
{
    struct etcd_failure failure = {.error = ETCD_UNREACHABLE, .is_proof = true};
    char *request = json_dumps(call->request, JSON_COMPACT);
    leat_assert(request != NULL);
    call->answer = NULL;
    *answer = (struct etcd_answer){.outcome = ETCD_UNKNOWN};
    if (strlen(request) > 2 * ETCD_REQUEST_BYTES_MAX) /* base64, and what stands around it */
        failure = (struct etcd_failure){ETCD_TOO_LARGE, true, "a request of more than 1 MiB"};
    else
        try_all(etcd, call, request, &failure);
    free(request);
    if (call->answer == NULL) {
        say_and_set(etcd, call, &failure, answer, diags);
        return answer->outcome;
    }
    answer->outcome = ETCD_DONE;
    return ETCD_DONE;
}
