#include "cli/cluster_request.h"

#include "cluster/coordination.h"
#include "cluster/record.h"

#include <stdio.h>

enum { VERSION = 1 };

static char *dump(json_t *json)
{
    char *text = json == NULL ? NULL : json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    leat_assert(text != NULL && strlen(text) <= COORDINATION_TEXT_BYTES_MAX); /* texts were checked: UTF-8 */
    json_decref(json);
    return text;
}

static bool read_text(const json_t *json, const char *name, char *text, size_t bytes)
{
    const json_t *member = json_object_get(json, name);
    return json_is_string(member) && json_string_length(member) < bytes &&
           (size_t)snprintf(text, bytes, "%s", json_string_value(member)) == json_string_length(member);
}

/* Not negative, and no NaN, which JSON has none of. */
static bool read_real(const json_t *json, const char *name, double *value)
{
    const json_t *member = json_object_get(json, name);
    *value = json_number_value(member);
    return json_is_number(member) && *value >= 0;
}

char *cluster_request_write(const struct cluster_request *request)
{
    return dump(json_pack("{s:i, s:i, s:I, s:I, s:s, s:s, s:s}", "version", VERSION, "kind",
                          (int)request->kind, "incarnation", (json_int_t)request->incarnation, "nonce",
                          (json_int_t)request->nonce, "groups", request->groups, "part", request->part,
                          "address", request->address));
}

bool cluster_request_read(struct str text, struct cluster_request *request)
{
    int64_t kind = 0, incarnation = 0, nonce = 0;
    json_t *json = record_load(text, VERSION);
    *request = (struct cluster_request){.kind = CLUSTER_REQUEST_BALANCE};
    bool ok = json != NULL && record_number(json, "kind", CLUSTER_REQUEST_PART, &kind) &&
              record_number(json, "incarnation", INT64_MAX, &incarnation) &&
              record_number(json, "nonce", INT64_MAX, &nonce) &&
              read_text(json, "groups", request->groups, sizeof(request->groups)) &&
              read_text(json, "part", request->part, sizeof(request->part)) &&
              read_text(json, "address", request->address, sizeof(request->address));
    request->kind = (enum cluster_request_kind)kind;
    request->incarnation = (uint64_t)incarnation;
    request->nonce = (uint64_t)nonce;
    json_decref(json);
    return ok;
}

char *cluster_answer_write(const struct cluster_answer *answer)
{
    const struct run_moves *moves = &answer->moves;
    return dump(json_pack("{s:i, s:i, s:I, s:i, s:i, s:I, s:f, s:f, s:s, s:s}", "version", VERSION, "state",
                          (int)answer->state, "nonce", (json_int_t)answer->nonce, "changes",
                          (int)moves->changes, "groups", (int)moves->groups, "bytes",
                          (json_int_t)moves->bytes, "before", moves->before, "after", moves->after, "what",
                          answer->what, "hint", answer->hint));
}

bool cluster_answer_read(struct str text, struct cluster_answer *answer)
{
    int64_t state = 0, nonce = 0, changes = 0, groups = 0, bytes = 0;
    json_t *json = record_load(text, VERSION);
    *answer = (struct cluster_answer){.state = CLUSTER_ANSWER_WORKS};
    bool ok = json != NULL && record_number(json, "state", CLUSTER_ANSWER_REFUSED, &state) &&
              record_number(json, "nonce", INT64_MAX, &nonce) &&
              record_number(json, "changes", INT32_MAX, &changes) &&
              record_number(json, "groups", INT32_MAX, &groups) &&
              record_number(json, "bytes", INT64_MAX, &bytes) &&
              read_real(json, "before", &answer->moves.before) &&
              read_real(json, "after", &answer->moves.after) &&
              read_text(json, "what", answer->what, sizeof(answer->what)) &&
              read_text(json, "hint", answer->hint, sizeof(answer->hint));
    answer->state = (enum cluster_answer_state)state;
    answer->nonce = (uint64_t)nonce;
    answer->moves.bytes = (uint64_t)bytes;
    answer->moves.changes = (uint32_t)changes;
    answer->moves.groups = (uint32_t)groups;
    json_decref(json);
    return ok;
}
