#include "net/fetch.h"

#include "core/mem.h"
#include "net/rules.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { CONNECT_MS = 5000 };

struct fetch {
    CURL *curl;
    char *base; /* "http://HOST:PORT" */
    struct curl_slist *fields;
    atomic_bool must_stop;
    struct byte_buffer *body; /* of the request in work */
    size_t body_max;
    char why[CURL_ERROR_SIZE];
};

static size_t take(char *bytes, size_t size, size_t count, void *user)
{
    struct fetch *fetch = user;
    size_t length = size * count;
    if (length > fetch->body_max - fetch->body->length)
        return 0; /* ends the request */
    buffer_append(fetch->body, bytes, length);
    return length;
}

/* libcurl calls it about once a second; another value than 0 ends the request. */
static int look(void *user, curl_off_t a LEAT_UNUSED, curl_off_t b LEAT_UNUSED, curl_off_t c LEAT_UNUSED,
                curl_off_t d LEAT_UNUSED)
{
    const struct fetch *fetch = user;
    return atomic_load(&fetch->must_stop);
}

static bool check_options(const struct fetch_options *options, struct diag_list *diags)
{
    struct authority authority;
    struct diag *d;
    if (!authority_parse(options->address, &authority) || authority.port <= 0) {
        d = diag_error(diags, DIAG_LISTEN_FAILED, (struct span){0},
                       "expected a host with a port, found `%.*s`", STR_ARGS(options->address));
        diag_hint(diags, d, "write `trainer-1:7000` or `10.0.0.7:7000`");
        return false;
    }
    if (options->authority == NULL && !host_is_loopback(authority.host)) {
        d = diag_error(diags, DIAG_OPEN_CONNECTION, (struct span){0},
                       "`%.*s` is another machine, and the connection would not be encrypted",
                       STR_ARGS(options->address));
        diag_hint(
            diags, d,
            "give the authority of the server's certificate, and a certificate of this one's with its key");
        return false;
    }
    return true;
}

static void make_curl(struct fetch *fetch, const struct fetch_options *options)
{
    CURL *curl = fetch->curl;
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, fetch);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, fetch);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, fetch->why);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*"); /* whatever the environment says */
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, options->authority == NULL ? "http" : "https");
    if (options->authority != NULL) {
        curl_easy_setopt(curl, CURLOPT_CAINFO, options->authority);
        curl_easy_setopt(curl, CURLOPT_CAPATH, NULL); /* else the system's authorities are believed, too */
    }
    if (options->token != NULL) {
        char *field = mem_printf("authorization: Bearer %s", options->token);
        fetch->fields = curl_slist_append(NULL, field);
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fetch->fields);
        free(field);
    }
    if (options->certificate != NULL)
        curl_easy_setopt(curl, CURLOPT_SSLCERT, options->certificate);
    if (options->key != NULL)
        curl_easy_setopt(curl, CURLOPT_SSLKEY, options->key);
}

static void begin_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

struct fetch *fetch_new(const struct fetch_options *options, struct diag_list *diags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!check_options(options, diags))
        return NULL;
    pthread_once(&once, begin_curl);
    struct fetch *fetch = mem_calloc(1, sizeof(*fetch));
    fetch->base =
        mem_printf("%s://%.*s", options->authority == NULL ? "http" : "https", STR_ARGS(options->address));
    fetch->curl = curl_easy_init();
    leat_assert(fetch->curl != NULL);
    make_curl(fetch, options);
    return fetch;
}

void fetch_free(struct fetch *fetch)
{
    if (fetch == NULL)
        return;
    curl_easy_cleanup(fetch->curl);
    curl_slist_free_all(fetch->fields);
    free(fetch->base);
    free(fetch);
}

static int perform(struct fetch *fetch, const char *target, uint32_t stall_s, size_t body_max,
                   struct byte_buffer *body)
{
    char *url = mem_printf("%s%s", fetch->base, target);
    long status = 0;
    buffer_clear(body);
    fetch->body = body;
    fetch->body_max = body_max;
    fetch->why[0] = '\0';
    curl_easy_setopt(fetch->curl, CURLOPT_URL, url);
    curl_easy_setopt(fetch->curl, CURLOPT_LOW_SPEED_LIMIT, 1L); /* bytes a second */
    curl_easy_setopt(fetch->curl, CURLOPT_LOW_SPEED_TIME, (long)stall_s);
    CURLcode code =
        atomic_load(&fetch->must_stop) ? CURLE_ABORTED_BY_CALLBACK : curl_easy_perform(fetch->curl);
    if (code == CURLE_OK)
        curl_easy_getinfo(fetch->curl, CURLINFO_RESPONSE_CODE, &status);
    else if (fetch->why[0] == '\0')
        snprintf(fetch->why, sizeof(fetch->why), "%s", curl_easy_strerror(code));
    free(url);
    return (int)status;
}

int fetch_get(struct fetch *fetch, const char *target, uint32_t stall_s, size_t body_max,
              struct byte_buffer *body)
{
    curl_easy_setopt(fetch->curl, CURLOPT_HTTPGET, 1L);
    return perform(fetch, target, stall_s, body_max, body);
}

int fetch_post(struct fetch *fetch, const char *target, uint32_t stall_s, size_t body_max,
               struct byte_buffer *body)
{
    curl_easy_setopt(fetch->curl, CURLOPT_POSTFIELDS, "");
    curl_easy_setopt(fetch->curl, CURLOPT_POSTFIELDSIZE, 0L);
    curl_easy_setopt(fetch->curl, CURLOPT_POST, 1L);
    return perform(fetch, target, stall_s, body_max, body);
}

const char *fetch_why(const struct fetch *fetch)
{
    return fetch->why;
}

void fetch_stop(struct fetch *fetch)
{
    atomic_store(&fetch->must_stop, true);
}
