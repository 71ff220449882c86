/* A round as text: the record `placement`, JSON with a version, read again with bounds. */
#include "cluster/record.h"
#include "cluster/rendezvous_internal.h"

enum { VERSION = 1 };

static void put_text(json_t *json, const char *name, struct str text)
{
    if (text.length > 0)
        json_object_set_new(json, name, json_stringn(text.data, text.length));
}

char *rendezvous_round_write(const struct rendezvous_round *round, enum ended ended)
{
    json_t *workers = json_array();
    for (uint32_t i = 0; i < round->count; i++) {
        const struct rendezvous_worker *worker = &round->workers[i];
        json_array_append_new(workers, json_pack("{s:I, s:s%, s:s%}", "lease", (json_int_t)worker->lease,
                                                 "address", worker->address.data, worker->address.length,
                                                 "host", worker->host.data, worker->host.length));
    }
    json_t *json = json_pack("{s:i, s:I, s:i, s:i, s:i, s:i, s:I, s:I, s:i, s:i, s:o}", "version", VERSION,
                             "incarnation", (json_int_t)round->incarnation, "leader", (int)round->leader,
                             "lanes", (int)round->lanes, "least", (int)round->least, "most", (int)round->most,
                             "head", (json_int_t)round->head.revision, "wanted", (json_int_t)round->wanted,
                             "changes", (int)round->changes, "ended", (int)ended, "workers", workers);
    put_text(json, "inputs", round->inputs);
    put_text(json, "places", round->places);
    put_text(json, "next_places", round->next_places);
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    leat_assert(text != NULL); /* texts of members were read as UTF-8 */
    json_decref(json);
    return text;
}

/* A text that may be missing. */
static bool read_more(const json_t *json, const char *name, size_t most, struct arena *arena,
                      struct str *text)
{
    return json_object_get(json, name) == NULL || record_text(json, name, most, arena, text);
}

static bool read_workers(const json_t *workers, struct arena *arena, struct rendezvous_round *round)
{
    round->count = (uint32_t)MIN(json_array_size(workers), (size_t)RENDEZVOUS_WORKERS_MAX + 1);
    if (round->count == 0 || round->count > RENDEZVOUS_WORKERS_MAX)
        return false;
    for (uint32_t i = 0; i < round->count; i++) {
        const json_t *json = json_array_get(workers, i);
        struct rendezvous_worker *worker = &round->workers[i];
        worker->lease = json_integer_value(json_object_get(json, "lease"));
        if (worker->lease == 0 ||
            !record_text(json, "address", COORDINATION_TEXT_BYTES_MAX, arena, &worker->address) ||
            !record_text(json, "host", COORDINATION_TEXT_BYTES_MAX, arena, &worker->host))
            return false;
        if (rendezvous_number(round, worker->lease) < i)
            return false;
    }
    return true;
}

bool rendezvous_round_read(struct str text, struct arena *arena, struct rendezvous_round *round,
                           enum ended *ended)
{
    int64_t incarnation, leader, lanes, head, least, most, wanted, changes, end = ENDED_NOT;
    json_t *json = record_load(text, VERSION);
    *round = (struct rendezvous_round){0};
    bool ok = json != NULL && record_number(json, "incarnation", INT64_MAX, &incarnation) &&
              record_number(json, "lanes", UINT16_MAX, &lanes) && lanes > 0 &&
              record_number(json, "head", INT64_MAX, &head) &&
              record_number(json, "least", RENDEZVOUS_WORKERS_MAX, &least) &&
              record_number(json, "most", RENDEZVOUS_WORKERS_MAX, &most) &&
              record_number(json, "wanted", INT64_MAX, &wanted) &&
              record_number(json, "changes", 1, &changes) &&
              record_number(json, "ended", ENDED_FINISHED, &end) &&
              read_workers(json_object_get(json, "workers"), arena, round) &&
              record_number(json, "leader", round->count - 1, &leader) &&
              read_more(json, "inputs", RENDEZVOUS_INPUTS_BYTES_MAX, arena, &round->inputs) &&
              read_more(json, "places", RENDEZVOUS_PLACES_BYTES_MAX, arena, &round->places) &&
              read_more(json, "next_places", RENDEZVOUS_PLACES_BYTES_MAX, arena, &round->next_places);
    *ended = (enum ended)end;
    json_decref(json);
    if (!ok)
        return false;
    round->incarnation = (uint64_t)incarnation;
    round->leader = (uint32_t)leader;
    round->lanes = (uint32_t)lanes;
    round->head.revision = head;
    round->least = (uint32_t)least;
    round->most = (uint32_t)most;
    round->wanted = wanted;
    round->changes = changes != 0;
    return true;
}

uint32_t rendezvous_number(const struct rendezvous_round *round, int64_t lease)
{
    uint32_t i = 0;
    while (i < round->count && round->workers[i].lease != lease)
        i++;
    return i;
}

uint32_t rendezvous_number_at(const struct rendezvous_round *round, struct str address)
{
    uint32_t i = 0;
    while (i < round->count && !str_equal(round->workers[i].address, address))
        i++;
    return i;
}

void rendezvous_copy(const struct rendezvous_round *round, struct arena *arena, struct rendezvous_round *copy)
{
    *copy = *round;
    for (uint32_t i = 0; i < round->count; i++) {
        copy->workers[i].address = arena_str(arena, round->workers[i].address);
        copy->workers[i].host = arena_str(arena, round->workers[i].host);
    }
    copy->run = arena_str(arena, round->run);
    copy->inputs = arena_str(arena, round->inputs);
    copy->places = arena_str(arena, round->places);
    copy->next_places = arena_str(arena, round->next_places);
    copy->head.manifest = arena_str(arena, round->head.manifest);
    copy->head.digest = arena_str(arena, round->head.digest);
}

bool rendezvous_read(struct str placement, struct arena *arena, struct rendezvous_round *round,
                     bool *has_ended)
{
    enum ended ended = ENDED_NOT;
    bool is_round = rendezvous_round_read(placement, arena, round, &ended);
    *has_ended = ended != ENDED_NOT;
    return is_round;
}
