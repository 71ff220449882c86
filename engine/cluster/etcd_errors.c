/* What a failed request means: whether it is proof that nothing happened, and what people can do about it. */
#include "cluster/etcd_internal.h"
#include "core/mem.h"
#include "core/quote.h"

#include <stdlib.h>

/* --- Judging --- */

/* etcd's texts, which are part of its interface (its own client goes by them). is_proof: etcd says it before the request could
 * change anything. It is not for "database space exceeded": a member applies a write that passed the check, and then reports
 * that the room was not enough. */
static const struct {
    const char *text; /* the message begins with it */
    enum etcd_error error;
    bool is_proof;
} known[] = {
    {"etcdserver: no leader", ETCD_NO_LEADER,
     true}, /* asked for by the field hasleader: said before all else */
    {"etcdserver: too many requests", ETCD_BUSY, true},
    {"etcdserver: mvcc: database space exceeded", ETCD_NO_SPACE, false},
    {"etcdserver: permission denied", ETCD_DENIED, true},
    {"etcdserver: user name is empty", ETCD_DENIED, true},
    {"etcdserver: user name not found", ETCD_LOGIN, true},
    {"etcdserver: authentication failed", ETCD_LOGIN, true},
    {"etcdserver: authentication is not enabled", ETCD_LOGIN, true},
    {"etcdserver: invalid auth token", ETCD_TOKEN, true},
    {"etcdserver: revision of auth store is old", ETCD_TOKEN, true},
    {"etcdserver: mvcc: required revision has been compacted", ETCD_COMPACTED, true},
    {"etcdserver: mvcc: required revision is a future revision", ETCD_FUTURE, true},
    {"etcdserver: request is too large", ETCD_TOO_LARGE, true},
    {"etcdserver: too many operations in txn request", ETCD_TOO_LARGE, true},
    {"etcdserver: requested lease not found", ETCD_NO_LEASE, true},
    {"etcdserver: key is not provided", ETCD_OTHER, true},
    {"etcdserver: duplicate key given in txn request", ETCD_OTHER, true},
    {"etcdserver: request timed out", ETCD_TIMED_OUT, false},
    {"etcdserver: leader changed", ETCD_TIMED_OUT, false},
    {"etcdserver: server stopped", ETCD_TIMED_OUT, false},
};

/* What is no JSON: the beginning of the text is shown. */
static void judge_text(struct str text, long status, struct etcd_failure *failure)
{
    static const char common_name[] = "CommonName of client";
    *failure = (struct etcd_failure){.error = ETCD_BAD_ANSWER};
    if (text.length >= sizeof(common_name) - 1 &&
        memcmp(text.data, common_name, sizeof(common_name) - 1) == 0)
        *failure = (struct etcd_failure){.error = ETCD_CERTIFICATE_NAME, .is_proof = true};
    snprintf(failure->what, sizeof(failure->what), "status %ld, `%.*s`", status,
             (int)MIN(text.length, (size_t)100), text.length == 0 ? "" : text.data);
}

void etcd_judge(const json_t *error, struct str raw, long status, struct etcd_failure *failure)
{
    const json_t *inner = json_object_get(error, "error"); /* of a stream it is an object */
    const char *text = json_string_value(error);
    if (text == NULL)
        text = json_string_value(inner);
    if (text == NULL)
        text = json_string_value(json_object_get(inner, "message"));
    if (text == NULL)
        text = json_string_value(json_object_get(error, "message"));
    if (text == NULL) {
        judge_text(raw, status, failure);
        return;
    }
    *failure = (struct etcd_failure){.error = ETCD_OTHER};
    for (size_t i = 0; i < ARRAY_COUNT(known); i++)
        if (strncmp(text, known[i].text, strlen(known[i].text)) == 0) {
            failure->error = known[i].error;
            failure->is_proof = known[i].is_proof;
        }
    snprintf(failure->what, sizeof(failure->what), "`%.300s`", text);
}

/* TLS that one side refused. In TLS 1.3 the server does so when the client has sent its request already. */
static bool is_tls(CURLcode code, const char *why)
{
    return code == CURLE_SSL_CONNECT_ERROR || code == CURLE_PEER_FAILED_VERIFICATION ||
           code == CURLE_SSL_CERTPROBLEM || code == CURLE_SSL_CACERT_BADFILE ||
           code == CURLE_SSL_ISSUER_ERROR ||
           (code == CURLE_RECV_ERROR && strstr(why, "SSL routines") != NULL);
}

void etcd_judge_curl(CURLcode code, const char *why, bool has_sent, struct etcd_failure *failure)
{
    bool is_long = code == CURLE_WRITE_ERROR;
    *failure = (struct etcd_failure){.error = is_long             ? ETCD_BAD_ANSWER
                                              : is_tls(code, why) ? ETCD_TLS
                                              : has_sent          ? ETCD_NO_ANSWER
                                                                  : ETCD_UNREACHABLE,
                                     .is_proof = !has_sent};
    snprintf(failure->what, sizeof(failure->what), "%.300s",
             is_long          ? "an answer that is too long"
             : why[0] != '\0' ? why
                              : curl_easy_strerror(code));
}

/* --- Saying --- */

static const struct {
    enum etcd_error error;
    const char *expected, *hint;
} ways_out[] = {
    {ETCD_UNREACHABLE, "a member of etcd that can be connected to",
     "is etcd up, are these its client addresses, and does it use TLS where leat does not, or the other way round?"},
    {ETCD_TLS, "TLS that both sides accept",
     "did the given authority sign etcd's certificates, do these name the endpoint's host, and has the client certificate that "
     "etcd wants been given?"},
    {ETCD_CERTIFICATE_NAME, "a client certificate without a common name (CN)",
     "etcd's JSON gateway refuses one while authentication is on: make a certificate without it, and give user and password"},
    {ETCD_NO_ANSWER, "an answer by the deadline",
     "leat asks again; if it lasts: is etcd up, do its members reach each other, is its disk fast enough, and does it use TLS "
     "where leat does not?"},
    {ETCD_BAD_ANSWER, "an answer of etcd's JSON gateway (3.4 or later)",
     "are these the client addresses of etcd, with its gateway on (`--enable-grpc-gateway`)?"},
    {ETCD_NO_LEADER, "a leader among etcd's members",
     "bring back members until most of them are up and reach each other; leat waits for it"},
    {ETCD_TIMED_OUT, "etcd to agree with itself",
     "bring back members until most of them are up and reach each other; leat waits for it"},
    {ETCD_BUSY, "etcd to keep up", "leat asks again; if it lasts: give etcd a faster disk"},
    {ETCD_NO_SPACE, "room in etcd",
     "compact and defragment etcd, disarm the alarm (`etcdctl alarm disarm`), and raise `--quota-backend-bytes`"},
    {ETCD_DENIED, "the rights to read and write below /leat/",
     "give leat a user with a role that has them: `etcdctl role grant-permission ROLE readwrite /leat/ --prefix=true`"},
    {ETCD_LOGIN, "a user that etcd knows, with its password",
     "correct user and password, or leave both out where etcd has authentication off"},
    {ETCD_TOKEN, "a token that etcd knows",
     "correct etcd's `--auth-token`: it must be the same on all its members"},
    {ETCD_COMPACTED, "a revision that etcd still keeps", "read what is there now, and go on from that"},
    {ETCD_FUTURE, "a revision that etcd has had",
     "was etcd restored from an older snapshot, or is it another etcd? Look at its data before going on"},
    {ETCD_TOO_LARGE, "a smaller request, or fewer keys", "are there keys of something else below /leat/?"},
    {ETCD_NO_LEASE, "a lease that lives", "join the cluster again"},
    {ETCD_OTHER, "another answer", "see etcd's log"},
};

void etcd_say(const struct etcd *etcd, const char *purpose, const struct etcd_failure *failure,
              struct diag_list *diags)
{
    const char *expected = "another answer", *hint = "see etcd's log";
    for (size_t i = 0; i < ARRAY_COUNT(ways_out); i++)
        if (ways_out[i].error == failure->error) {
            expected = ways_out[i].expected;
            hint = ways_out[i].hint;
        }
    char *what = text_without(text_without(mem_strdup(failure->what), etcd->token), etcd->password);
    struct diag *d =
        diag_error(diags, DIAG_COORDINATION_FAILED, (struct span){0},
                   "etcd at `%s`: cannot %s: expected %s, found %s%s", etcd_endpoint(etcd), purpose, expected,
                   what, failure->is_proof ? "" : " (whether it happened is not known)");
    diag_hint(diags, d, "%s", hint);
    free(what);
}
