/* A watch: one answer that does not end, line by line. Nothing is read while a whole line waits to be taken, so that no more lies
 * here than a line, which is bounded, and what libcurl reads at a time (below 2 MiB); the rest stays with etcd. */
#include "cluster/etcd_internal.h"
#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>

enum { CONNECT_MS = 2000, POLL_US = 200000 };

struct etcd_watch {
    struct etcd *etcd;
    CURLM *multi;
    CURL *curl; /* NULL: not connected */
    struct curl_slist *fields;
    char *key;
    size_t key_length;
    bool is_prefix, is_compacted;
    int64_t next;              /* the revision that comes next; 0: not known, from now on */
    int64_t compacted;         /* the first revision that is kept */
    struct byte_buffer buffer; /* what has come ... */
    size_t begin, scanned;     /* ... its bytes that are taken, and those without a line's end */
    char *request;
    char why[CURL_ERROR_SIZE];
};

static size_t waiting(const struct etcd_watch *watch)
{
    return watch->buffer.length - watch->begin;
}

/* Finds the end of the first line. */
static bool find_line(struct etcd_watch *watch, size_t *end)
{
    size_t from = MAX(watch->scanned, watch->begin);
    const char *at = from == watch->buffer.length
                         ? NULL
                         : memchr(watch->buffer.data + from, '\n', watch->buffer.length - from);
    watch->scanned = at == NULL ? watch->buffer.length : (size_t)(at - watch->buffer.data);
    *end = watch->scanned;
    return at != NULL;
}

static size_t take(char *bytes, size_t size, size_t count, void *user)
{
    struct etcd_watch *watch = user;
    size_t length = size * count;
    if (length > ETCD_ANSWER_BYTES_MAX || waiting(watch) > ETCD_ANSWER_BYTES_MAX)
        return 0; /* a line that is too long: CURLE_WRITE_ERROR */
    if (watch->begin > 0) {
        watch->buffer.length -= watch->begin;
        memmove(watch->buffer.data, watch->buffer.data + watch->begin, watch->buffer.length);
        watch->scanned -= MIN(watch->scanned, watch->begin);
        watch->begin = 0;
    }
    buffer_append(&watch->buffer, bytes, length);
    return length;
}

/* --- The connection --- */

static void disconnect(struct etcd_watch *watch)
{
    if (watch->curl != NULL) {
        curl_multi_remove_handle(watch->multi, watch->curl);
        curl_easy_cleanup(watch->curl);
        curl_slist_free_all(watch->fields);
        free(watch->request);
    }
    watch->curl = NULL;
    watch->fields = NULL;
    watch->request = NULL;
    watch->begin = watch->scanned = 0;
    buffer_clear(&watch->buffer);
}

static char *make_request(const struct etcd_watch *watch)
{
    struct str key = {watch->key, watch->key_length};
    json_t *create = json_pack("{s:o, s:o, s:b}", "key", etcd_base64(key), "start_revision",
                               json_sprintf("%lld", (long long)watch->next), "progress_notify", 1);
    if (watch->is_prefix)
        json_object_set_new(create, "range_end", etcd_prefix_end(key));
    json_t *request = json_pack("{s:o}", "create_request", create);
    char *text = json_dumps(request, JSON_COMPACT);
    leat_assert(text != NULL);
    json_decref(request);
    return text;
}

static bool connect_stream(struct etcd_watch *watch, struct etcd_failure *failure)
{
    struct etcd *etcd = watch->etcd;
    if (!etcd_log_in(etcd, etcd->request_us, failure))
        return false;
    watch->curl = curl_easy_init();
    leat_assert(watch->curl != NULL);
    watch->request = make_request(watch);
    watch->fields = etcd_set_up(etcd, watch->curl, "watch", false);
    watch->why[0] = '\0';
    curl_easy_setopt(watch->curl, CURLOPT_ERRORBUFFER, watch->why);
    curl_easy_setopt(watch->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(watch->curl, CURLOPT_POSTFIELDS, watch->request);
    curl_easy_setopt(watch->curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(watch->curl, CURLOPT_WRITEDATA, watch);
    leat_assert(curl_multi_add_handle(watch->multi, watch->curl) == CURLM_OK);
    return true;
}

/* The stream has ended; what came last may be an error without a line's end. */
static void judge_end(struct etcd_watch *watch, CURLcode code, struct etcd_failure *failure)
{
    long status = 0;
    curl_easy_getinfo(watch->curl, CURLINFO_RESPONSE_CODE, &status);
    struct str rest =
        waiting(watch) == 0 ? STR("") : (struct str){watch->buffer.data + watch->begin, waiting(watch)};
    json_t *json = json_loadb(rest.data, rest.length, JSON_REJECT_DUPLICATES, NULL);
    if (code == CURLE_OK && (json != NULL || status != 200)) {
        etcd_judge(json, rest, status, failure);
    } else {
        etcd_judge_curl(code, watch->why, status != 0, failure);
        if (code == CURLE_OK)
            snprintf(failure->what, sizeof(failure->what), "the end of the stream");
    }
    json_decref(json);
}

/* Lets the transfer go on. false: it has ended. */
static bool perform(struct etcd_watch *watch, struct etcd_failure *failure)
{
    int running, left;
    curl_multi_perform(watch->multi, &running);
    for (CURLMsg *message; (message = curl_multi_info_read(watch->multi, &left)) != NULL;)
        if (message->msg == CURLMSG_DONE) {
            size_t end;
            if (find_line(watch, &end))
                return true; /* first what has come; the next turn finds the end again */
            judge_end(watch, message->data.result, failure);
            return false;
        }
    if (running > 0)
        return true;
    judge_end(watch, CURLE_OK, failure);
    return false;
}

/* --- Lines --- */

static enum etcd_watched lose(struct etcd_watch *watch, struct etcd_failure *failure, struct diag_list *diags)
{
    struct etcd *etcd = watch->etcd;
    failure->is_proof = true; /* a watch changes nothing */
    etcd_say(etcd, "watch", failure, diags);
    if (failure->error == ETCD_TOKEN)
        etcd_forget_token(etcd);
    else
        etcd->current = (etcd->current + 1) % etcd->endpoints_count;
    disconnect(watch);
    return ETCD_WATCH_LOST;
}

/* Reads the first line. ETCD_WATCH_QUIET: it says nothing to the caller. */
static enum etcd_watched read_line(struct etcd_watch *watch, size_t end, struct arena *arena,
                                   struct etcd_changes *changes, struct diag_list *diags)
{
    enum etcd_watched watched = ETCD_WATCH_LOST;
    struct etcd_failure failure = {ETCD_BAD_ANSWER, true, "a line that is no answer to a watch"};
    bool is_good = etcd_watch_read(watch->buffer.data + watch->begin, end - watch->begin, arena, &watched,
                                   changes, &failure);
    watch->begin = end + 1;
    if (is_good && watched == ETCD_WATCH_EVENTS &&
        (changes->count == 0 || changes->events[0].entry.mod_revision < watch->next))
        is_good = false;
    if (!is_good || watched == ETCD_WATCH_LOST)
        return lose(watch, &failure, diags);
    if (watched == ETCD_WATCH_COMPACTED) {
        watch->is_compacted = true;
        watch->compacted = changes->revision;
        disconnect(watch);
    } else if (watched != ETCD_WATCH_QUIET || watch->next == 0) {
        watch->next = MAX(watch->next, changes->revision + 1);
    }
    return watched;
}

struct etcd_watch *etcd_watch_open(struct etcd *etcd, struct str key, bool is_prefix, int64_t start)
{
    struct etcd_watch *watch = mem_calloc(1, sizeof(*watch));
    watch->etcd = etcd;
    watch->multi = curl_multi_init();
    leat_assert(watch->multi != NULL);
    watch->key = mem_str(key);
    watch->key_length = key.length;
    watch->is_prefix = is_prefix;
    watch->next = start;
    return watch;
}

enum etcd_watched etcd_watch_next(struct etcd_watch *watch, int64_t wait_us, struct arena *arena,
                                  struct etcd_changes *changes, struct diag_list *diags)
{
    int64_t until = time_add(os_monotonic_us(), wait_us);
    struct etcd_failure failure;
    size_t end;
    *changes = (struct etcd_changes){.revision = watch->compacted};
    if (watch->is_compacted)
        return ETCD_WATCH_COMPACTED;
    while (!atomic_load(&watch->etcd->must_stop)) {
        if (find_line(watch, &end)) {
            enum etcd_watched watched = read_line(watch, end, arena, changes, diags);
            if (watched != ETCD_WATCH_QUIET)
                return watched;
            continue;
        }
        if (watch->curl == NULL && !connect_stream(watch, &failure))
            return lose(watch, &failure, diags);
        if (!perform(watch, &failure))
            return lose(watch, &failure, diags);
        if (find_line(watch, &end))
            continue;
        int64_t left_us = until - os_monotonic_us();
        if (left_us <= 0)
            break;
        curl_multi_poll(watch->multi, NULL, 0, (int)(MIN(left_us, (int64_t)POLL_US) / 1000 + 1), NULL);
    }
    *changes = (struct etcd_changes){.revision = watch->next > 0 ? watch->next - 1 : 0};
    return ETCD_WATCH_QUIET;
}

void etcd_watch_close(struct etcd_watch *watch)
{
    if (watch == NULL)
        return;
    disconnect(watch);
    curl_multi_cleanup(watch->multi);
    buffer_free(&watch->buffer);
    free(watch->key);
    free(watch);
}
