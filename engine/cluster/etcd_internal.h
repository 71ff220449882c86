/* What the files of the etcd client share. Private to etcd*.c, tests and fuzz targets. */
#ifndef LEAT_CLUSTER_ETCD_INTERNAL_H
#define LEAT_CLUSTER_ETCD_INTERNAL_H

#include "cluster/etcd.h"
#include "core/buffer.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdatomic.h>

struct etcd {
    CURL *curl;
    char *endpoints[ETCD_ENDPOINTS_MAX]; /* "HOST:PORT" */
    uint32_t endpoints_count;
    uint32_t current; /* the endpoint that answered last */
    char *authority, *certificate, *key, *user, *password;
    char *token; /* of /v3/auth/authenticate; NULL: none yet, or no user */
    int64_t request_us;
    atomic_bool must_stop;
};

/* One request: filled in by the caller up to `request`. */
struct etcd_call {
    const char *path;    /* below /v3/: "kv/txn" */
    const char *purpose; /* for messages: "read", "write" */
    bool is_read;        /* may be sent again, whatever became of it */
    bool is_local;       /* a member without a leader may answer */
    json_t *request;     /* the caller's */
    json_t *answer;      /* an object, the caller's to release; NULL: none */
};

/* Why a request, or one try of it, failed. */
struct etcd_failure {
    enum etcd_error error;
    bool is_proof;  /* it did not happen, and will not */
    char what[400]; /* what was found */
};

/* --- etcd_request.c --- */

/* Sends the request until an endpoint answers it, or it is not known what became of it. Sets answer's outcome, error, cluster
 * and revision; call->answer with ETCD_DONE. */
enum etcd_outcome etcd_perform(struct etcd *etcd, struct etcd_call *call, struct etcd_answer *answer,
                               struct diag_list *diags);
/* The options of every connection to the current endpoint, and its URL; a member without a leader may answer only if is_local.
 * Returns the fields, which the caller frees after the transfer. */
struct curl_slist *etcd_set_up(struct etcd *etcd, CURL *curl, const char *path, bool is_local);
/* Asks the current endpoint for a token, where one is needed. false after *failure. */
LEAT_CHECKED bool etcd_log_in(struct etcd *etcd, int64_t left_us, struct etcd_failure *failure);
void etcd_forget_token(struct etcd *etcd);

/* --- etcd_errors.c --- */

/* Whether the failure shows that it did not happen; from an error of the gateway: {"error": ..., "code": ...}, or its text. raw:
 * the whole answer, for what is none. */
void etcd_judge(const json_t *error, struct str raw, long status, struct etcd_failure *failure);
/* The same for a transfer without an answer. has_sent: bytes of the request. */
void etcd_judge_curl(CURLcode code, const char *why, bool has_sent, struct etcd_failure *failure);
/* E0712, without secrets. */
void etcd_say(const struct etcd *etcd, const char *purpose, const struct etcd_failure *failure,
              struct diag_list *diags);

/* --- etcd_json.c: false, or NULL, for what is not etcd's --- */

json_t *etcd_base64(struct str bytes);
/* The end of the range of keys that begin with `prefix`, as base64. */
json_t *etcd_prefix_end(struct str prefix);
/* Members of an object. What is absent is 0, false or empty, as etcd leaves those out. */
LEAT_CHECKED bool etcd_int(const json_t *object, const char *name, int64_t *value);
LEAT_CHECKED bool etcd_uint(const json_t *object, const char *name, uint64_t *value);
LEAT_CHECKED bool etcd_bool(const json_t *object, const char *name, bool *value);
LEAT_CHECKED bool etcd_bytes(const json_t *object, const char *name, struct arena *arena, struct str *value);
LEAT_CHECKED bool etcd_entry_read(const json_t *kv, struct arena *arena, struct etcd_entry *entry);
/* Appends the entries of an array `kvs` (NULL: empty). */
LEAT_CHECKED bool etcd_entries_read(const json_t *kvs, struct arena *arena, struct etcd_answer *answer);
LEAT_CHECKED bool etcd_header_read(const json_t *answer, uint64_t *cluster, int64_t *revision);
/* One line of a watch: {"result": ...}. *watched: what it is; ETCD_WATCH_QUIET: it says that the watch was created. */
LEAT_CHECKED bool etcd_watch_read(const char *line, size_t length, struct arena *arena,
                                  enum etcd_watched *watched, struct etcd_changes *changes,
                                  struct etcd_failure *failure);
/* The answer of a txn: entries of its ranges; whether it succeeded. */
LEAT_CHECKED bool etcd_txn_read(const json_t *answer, const struct etcd_txn *txn, struct arena *arena,
                                struct etcd_answer *out);

#endif
