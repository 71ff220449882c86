/* The requests: ranges, txns, leases, compaction, status. */
#include "cluster/etcd_internal.h"
#include "core/mem.h"

#include <inttypes.h>

enum { PAGE_KEYS = 512 };

/* An int64 as the gateway wants it: a text. */
static json_t *number(int64_t value)
{
    return json_sprintf("%" PRId64, value);
}

static void set(json_t *object, const char *name, json_t *value)
{
    leat_assert(json_object_set_new(object, name, value) == 0);
}

/* The answer is no answer of etcd's to this request. A read is none; of a write it is not known what it did. */
static enum etcd_outcome say_bad(struct etcd *etcd, const struct etcd_call *call, struct etcd_answer *answer,
                                 struct diag_list *diags)
{
    struct etcd_failure failure = {ETCD_BAD_ANSWER, call->is_read, "JSON that is no answer to this request"};
    etcd_say(etcd, call->purpose, &failure, diags);
    *answer = (struct etcd_answer){.outcome = ETCD_UNKNOWN, .error = ETCD_BAD_ANSWER};
    return ETCD_UNKNOWN;
}

/* Sends, and reads the header of the answer. The caller releases call->answer. */
static enum etcd_outcome ask(struct etcd *etcd, struct etcd_call *call, struct etcd_answer *answer,
                             struct diag_list *diags)
{
    enum etcd_outcome outcome = etcd_perform(etcd, call, answer, diags);
    json_decref(call->request);
    if (outcome == ETCD_DONE && !etcd_header_read(call->answer, &answer->cluster, &answer->revision))
        return say_bad(etcd, call, answer, diags);
    return outcome;
}

/* --- Keys --- */

/* A range of keys from `from` on, or of one key. */
static json_t *range_request(const struct etcd_range *range, struct str from, int64_t revision)
{
    json_t *request = json_object();
    set(request, "key", etcd_base64(from));
    if (range->is_prefix)
        set(request, "range_end", etcd_prefix_end(range->key));
    if (range->is_serializable)
        set(request, "serializable", json_true());
    if (revision > 0)
        set(request, "revision", number(revision));
    if (range->is_first_made) {
        set(request, "sort_order", json_string("ASCEND"));
        set(request, "sort_target", json_string("CREATE"));
    }
    set(request, "limit", number(range->is_first_made ? 1 : PAGE_KEYS));
    return request;
}

/* One page; *is_more: there are others behind it. */
static enum etcd_outcome range_page(struct etcd *etcd, const struct etcd_range *range, struct str from,
                                    struct arena *arena, struct etcd_answer *all, bool *is_more,
                                    struct diag_list *diags)
{
    struct etcd_call call = {.path = "kv/range",
                             .purpose = "read",
                             .is_read = true,
                             .is_local = range->is_serializable,
                             .request = range_request(range, from, all->revision)};
    struct etcd_answer answer;
    uint32_t before = all->count;
    if (ask(etcd, &call, &answer, diags) != ETCD_DONE) {
        answer.entries = NULL;
        *all = answer;
    } else if (!etcd_bool(call.answer, "more", is_more) ||
               !etcd_entries_read(json_object_get(call.answer, "kvs"), arena, all) ||
               (*is_more && all->count == before)) {
        say_bad(etcd, &call, all, diags);
    } else {
        all->outcome = ETCD_DONE;
        all->cluster = answer.cluster;
        all->revision = all->revision == 0 ? answer.revision : all->revision;
    }
    json_decref(call.answer);
    return all->outcome;
}

enum etcd_outcome etcd_range(struct etcd *etcd, const struct etcd_range *range, struct arena *arena,
                             struct etcd_answer *answer, struct diag_list *diags)
{
    struct str from = range->key;
    bool is_more = false;
    *answer = (struct etcd_answer){.revision = range->revision};
    do {
        if (range_page(etcd, range, from, arena, answer, &is_more, diags) != ETCD_DONE)
            return answer->outcome;
        if (is_more && answer->count > ETCD_KEYS_MAX - PAGE_KEYS) {
            struct etcd_failure failure = {ETCD_TOO_LARGE, true, "more keys than leat reads at once"};
            etcd_say(etcd, "read", &failure, diags);
            *answer = (struct etcd_answer){.outcome = ETCD_REFUSED, .error = ETCD_TOO_LARGE};
            return ETCD_REFUSED;
        }
        if (is_more) { /* the key that comes next: the last one and a zero byte */
            struct str last = answer->entries[answer->count - 1].key;
            char *next = arena_alloc(arena, last.length + 1);
            memcpy(next, last.data, last.length);
            next[last.length] = '\0';
            from = (struct str){next, last.length + 1};
        }
    } while (is_more && range->is_prefix && !range->is_first_made);
    return ETCD_DONE;
}

static json_t *op_request(const struct etcd_op *op)
{
    static const char *const names[] = {
        [ETCD_PUT] = "request_put", [ETCD_DELETE] = "request_delete_range", [ETCD_RANGE] = "request_range"};
    json_t *outer = json_object(), *inner = json_object();
    set(inner, "key", etcd_base64(op->key));
    if (op->kind == ETCD_PUT) {
        set(inner, "value", etcd_base64(op->value));
        if (op->lease != 0)
            set(inner, "lease", number(op->lease));
    } else if (op->is_prefix) {
        set(inner, "range_end", etcd_prefix_end(op->key));
    }
    set(outer, names[op->kind], inner);
    return outer;
}

static json_t *compare_request(const struct etcd_compare *compare)
{
    static const struct {
        const char *target, *member;
    } names[] = {[ETCD_VALUE] = {"VALUE", "value"},
                 [ETCD_VERSION] = {"VERSION", "version"},
                 [ETCD_CREATE_REVISION] = {"CREATE", "create_revision"},
                 [ETCD_MOD_REVISION] = {"MOD", "mod_revision"}};
    static const char *const relations[] = {[ETCD_EQUAL] = "EQUAL",
                                            [ETCD_NOT_EQUAL] = "NOT_EQUAL",
                                            [ETCD_GREATER] = "GREATER",
                                            [ETCD_LESS] = "LESS"};
    json_t *request = json_object();
    set(request, "key", etcd_base64(compare->key));
    set(request, "target", json_string(names[compare->target].target));
    set(request, "result", json_string(relations[compare->relation]));
    if (compare->is_prefix)
        set(request, "range_end", etcd_prefix_end(compare->key));
    set(request, names[compare->target].member,
        compare->target == ETCD_VALUE ? etcd_base64(compare->value) : number(compare->number));
    return request;
}

/* Behind else_ops stands a range of each compared key, which shows the compare that does not hold. */
static json_t *txn_request(const struct etcd_txn *txn)
{
    json_t *compares = json_array(), *then_ops = json_array(), *else_ops = json_array(),
           *request = json_object();
    for (uint32_t i = 0; i < txn->compares_count; i++)
        json_array_append_new(compares, compare_request(&txn->compares[i]));
    for (uint32_t i = 0; i < txn->then_count; i++)
        json_array_append_new(then_ops, op_request(&txn->then_ops[i]));
    for (uint32_t i = 0; i < txn->else_count; i++)
        json_array_append_new(else_ops, op_request(&txn->else_ops[i]));
    for (uint32_t i = 0; i < txn->compares_count; i++)
        json_array_append_new(else_ops,
                              op_request(&(struct etcd_op){.kind = ETCD_RANGE,
                                                           .key = txn->compares[i].key,
                                                           .is_prefix = txn->compares[i].is_prefix}));
    set(request, "compare", compares);
    set(request, "success", then_ops);
    set(request, "failure", else_ops);
    return request;
}

enum etcd_outcome etcd_txn(struct etcd *etcd, const struct etcd_txn *txn, struct arena *arena,
                           struct etcd_answer *answer, struct diag_list *diags)
{
    leat_assert(txn->compares_count <= ETCD_OPS_MAX && txn->then_count <= ETCD_OPS_MAX &&
                txn->else_count <= ETCD_OPS_MAX);
    struct etcd_call call = {.path = "kv/txn", .purpose = "write", .request = txn_request(txn)};
    struct etcd_answer read = {0};
    if (ask(etcd, &call, answer, diags) == ETCD_DONE) {
        if (etcd_txn_read(call.answer, txn, arena, &read))
            *answer = read;
        else
            say_bad(etcd, &call, answer, diags);
    }
    json_decref(call.answer);
    return answer->outcome;
}

/* A request of which only the header of the answer says something. */
static enum etcd_outcome simple(struct etcd *etcd, const char *path, const char *purpose, json_t *request,
                                struct etcd_answer *answer, struct diag_list *diags)
{
    struct etcd_call call = {.path = path, .purpose = purpose, .request = request};
    enum etcd_outcome outcome = ask(etcd, &call, answer, diags);
    json_decref(call.answer);
    return outcome;
}

enum etcd_outcome etcd_put(struct etcd *etcd, struct str key, struct str value, int64_t lease,
                           struct etcd_answer *answer, struct diag_list *diags)
{
    struct etcd_op op = {.kind = ETCD_PUT, .key = key, .value = value, .lease = lease};
    json_t *outer = op_request(&op), *request = json_incref(json_object_get(outer, "request_put"));
    json_decref(outer);
    return simple(etcd, "kv/put", "write", request, answer, diags);
}

enum etcd_outcome etcd_delete(struct etcd *etcd, struct str key, bool is_prefix, struct etcd_answer *answer,
                              struct diag_list *diags)
{
    struct etcd_op op = {.kind = ETCD_DELETE, .key = key, .is_prefix = is_prefix};
    json_t *outer = op_request(&op), *request = json_incref(json_object_get(outer, "request_delete_range"));
    json_decref(outer);
    return simple(etcd, "kv/deleterange", "delete", request, answer, diags);
}

enum etcd_outcome etcd_compact(struct etcd *etcd, int64_t revision, struct etcd_answer *answer,
                               struct diag_list *diags)
{
    json_t *request = json_object();
    set(request, "revision", number(revision));
    return simple(etcd, "kv/compaction", "compact", request, answer, diags);
}

/* --- Leases --- */

/* The lease and its time, from the answer or from "result" in it. */
static enum etcd_outcome ask_lease(struct etcd *etcd, struct etcd_call *call, struct etcd_answer *answer,
                                   struct diag_list *diags)
{
    enum etcd_outcome outcome = etcd_perform(etcd, call, answer, diags);
    json_decref(call->request);
    if (outcome == ETCD_DONE) {
        const json_t *result = json_object_get(call->answer, "result");
        result = result == NULL ? call->answer : result;
        if (!etcd_header_read(result, &answer->cluster, &answer->revision) ||
            !etcd_int(result, "ID", &answer->lease) || !etcd_int(result, "TTL", &answer->ttl_s) ||
            answer->lease == 0)
            outcome = say_bad(etcd, call, answer, diags);
    }
    json_decref(call->answer);
    return outcome;
}

enum etcd_outcome etcd_lease_grant(struct etcd *etcd, int64_t ttl_s, struct etcd_answer *answer,
                                   struct diag_list *diags)
{
    struct etcd_call call = {.path = "lease/grant", .purpose = "get a lease", .request = json_object()};
    set(call.request, "TTL", number(ttl_s));
    enum etcd_outcome outcome = ask_lease(etcd, &call, answer, diags);
    if (outcome != ETCD_DONE || answer->ttl_s > 0)
        return outcome;
    return say_bad(etcd, &call, answer, diags);
}

/* The answer about a lease that is gone has no time, and is no error of etcd's. */
static enum etcd_outcome say_gone(struct etcd *etcd, const char *purpose, struct etcd_answer *answer,
                                  struct diag_list *diags)
{
    struct etcd_failure failure = {ETCD_NO_LEASE, true, "none"};
    etcd_say(etcd, purpose, &failure, diags);
    answer->outcome = ETCD_REFUSED;
    answer->error = ETCD_NO_LEASE;
    return ETCD_REFUSED;
}

static enum etcd_outcome ask_time(struct etcd *etcd, const char *path, const char *purpose, int64_t lease,
                                  struct etcd_answer *answer, struct diag_list *diags)
{
    struct etcd_call call = {.path = path, .purpose = purpose, .is_read = true, .request = json_object()};
    set(call.request, "ID", number(lease));
    enum etcd_outcome outcome = ask_lease(etcd, &call, answer, diags);
    if (outcome != ETCD_DONE)
        return outcome;
    if (answer->lease != lease)
        return say_bad(etcd, &call, answer, diags);
    return answer->ttl_s > 0 ? ETCD_DONE : say_gone(etcd, purpose, answer, diags);
}

enum etcd_outcome etcd_lease_keep(struct etcd *etcd, int64_t lease, struct etcd_answer *answer,
                                  struct diag_list *diags)
{
    return ask_time(etcd, "lease/keepalive", "keep the lease", lease, answer, diags);
}

enum etcd_outcome etcd_lease_left(struct etcd *etcd, int64_t lease, struct etcd_answer *answer,
                                  struct diag_list *diags)
{
    return ask_time(etcd, "lease/timetolive", "read the lease", lease, answer, diags);
}

enum etcd_outcome etcd_lease_revoke(struct etcd *etcd, int64_t lease, struct etcd_answer *answer,
                                    struct diag_list *diags)
{
    json_t *request = json_object();
    set(request, "ID", number(lease));
    return simple(etcd, "lease/revoke", "give the lease back", request, answer, diags);
}

/* --- Status --- */

/* The status tells alarms as texts: "memberID:... alarm:NOSPACE". (Asking for the alarms themselves needs a quorum.) */
static bool has_no_space(const json_t *errors)
{
    for (size_t i = 0; i < json_array_size(errors); i++) {
        const char *text = json_string_value(json_array_get(errors, i));
        if (text != NULL && strstr(text, "NOSPACE") != NULL)
            return true;
    }
    return false;
}

static bool read_status(const json_t *answer, struct etcd_status *status)
{
    const json_t *header = json_object_get(answer, "header");
    const char *version = json_string_value(json_object_get(answer, "version"));
    if (version == NULL || !json_is_object(header))
        return false;
    snprintf(status->version, sizeof(status->version), "%s", version);
    status->is_out_of_space = has_no_space(json_object_get(answer, "errors"));
    return etcd_uint(header, "member_id", &status->member) && etcd_uint(answer, "leader", &status->leader) &&
           etcd_int(answer, "dbSize", &status->bytes) &&
           etcd_int(answer, "dbSizeInUse", &status->bytes_in_use);
}

enum etcd_outcome etcd_status(struct etcd *etcd, struct etcd_status *status, struct diag_list *diags)
{
    struct etcd_call call = {.path = "maintenance/status",
                             .purpose = "read the status",
                             .is_read = true,
                             .is_local = true,
                             .request = json_object()};
    struct etcd_answer answer;
    *status = (struct etcd_status){0};
    if (ask(etcd, &call, &answer, diags) == ETCD_DONE && !read_status(call.answer, status))
        say_bad(etcd, &call, &answer, diags);
    json_decref(call.answer);
    return answer.outcome;
}
