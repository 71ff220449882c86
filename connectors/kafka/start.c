#include "connectors/kafka/start.h"

#include "core/civil.h"
#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ANSWER_MS = 2000, OPEN_WAIT_US = 5 * 1000000 };

static const struct span no_span = {0, 0};

/* --- The option --- */

static bool bad_start(const struct ast *ast, struct diag_list *diags)
{
    struct diag *d = diag_error(diags, DIAG_NOT_A_CHOICE, ast->span, "`start` does not accept this value");
    diag_hint(
        diags, d,
        "`start` is earliest, latest, time(\"2026-01-31T12:00:00Z\"), or offsets(0, 17, ...), one for each "
        "partition of the topic");
    return false;
}

static bool bind_time(struct kafka_start *start, const struct ast *ast, struct diag_list *diags)
{
    int64_t time_us = 0;
    if (ast->count != 1 || ast->children[0]->tag != AST_TEXT)
        return bad_start(ast, diags);
    if (!civil_parse(ast->children[0]->text, &time_us) || time_us < 0) {
        struct diag *d =
            diag_error(diags, DIAG_OUT_OF_RANGE, ast->children[0]->span, "this is not a time since 1970");
        diag_hint(diags, d, "for example time(\"2026-01-31T12:00:00Z\")");
        return false;
    }
    start->time_ms = (time_us + 999) / 1000;
    return true;
}

static bool bind_offsets(struct kafka_start *start, const struct ast *ast, struct texts topics,
                         struct arena *arena, struct diag_list *diags)
{
    if (topics.count != 1 || (topics.items[0].length > 0 && topics.items[0].data[0] == '^')) {
        struct diag *d =
            diag_error(diags, DIAG_OPTIONS_CLASH, ast->span,
                       "offsets(...) are offsets of one topic, and this source may read several topics");
        diag_hint(diags, d, "read each topic by a source of its own, and `union` the sources");
        return false;
    }
    start->offsets = arena_array(arena, int64_t, ast->count);
    for (uint32_t i = 0; i < ast->count; i++) {
        if (ast->children[i]->tag != AST_INT || ast->children[i]->integer < 0)
            return bad_start(ast->children[i], diags);
        start->offsets[start->offsets_count++] = ast->children[i]->integer;
    }
    return ast->count > 0 || bad_start(ast, diags);
}

bool kafka_start_bind(struct kafka_start *start, const struct ast *ast, struct texts topics,
                      struct arena *arena, struct diag_list *diags)
{
    static const struct {
        enum ast_tag tag;
        const char *name;
        enum kafka_start_tag start;
    } forms[] = {{AST_NAME, "earliest", KAFKA_EARLIEST},
                 {AST_NAME, "latest", KAFKA_LATEST},
                 {AST_CALL, "time", KAFKA_AT_TIME},
                 {AST_CALL, "offsets", KAFKA_AT_OFFSETS}};
    for (size_t i = 0; i < ARRAY_COUNT(forms); i++) {
        if (ast->tag != forms[i].tag || !str_is(ast->text, forms[i].name))
            continue;
        start->tag = forms[i].start;
        if (start->tag == KAFKA_AT_TIME)
            return bind_time(start, ast, diags);
        return start->tag != KAFKA_AT_OFFSETS || bind_offsets(start, ast, topics, arena, diags);
    }
    return bad_start(ast, diags);
}

/* --- Lost records --- */

struct diag *kafka_say_gone(struct diag_list *diags, const char *name, const char *which, int64_t offset,
                            int64_t low)
{
    return diag_error(
        diags, DIAG_RECORDS_GONE, no_span,
        "the records of `%s` from offset %lld to %lld, which %s, are gone: the oldest is now %lld (some of "
        "these %lld offsets may have had no record for the job: markers of transactions, and records aborted "
        "or compacted away)",
        name, (long long)offset, (long long)low - 1, which, (long long)low, (long long)(low - offset));
}

/* --- Asking --- */

/* Asks again who leads the partitions of each topic, for any leader may be the one that did not answer. */
static void ask_leaders(rd_kafka_t *client, struct kafka_errors *errors, const struct kafka_place *places,
                        uint32_t count, struct kafka_patience *patience)
{
    for (uint32_t i = 0; i < count && kafka_patience_lasts(patience, errors); i++)
        if (i == 0 || strcmp(places[i].topic, places[i - 1].topic) != 0)
            kafka_client_ask_leaders(client, places[i].topic);
}

/* Asks ListOffsets for each place, into `offsets`. what: a time in milliseconds, or RD_KAFKA_OFFSET_BEGINNING
 * or RD_KAFKA_OFFSET_END, which have the protocol's own values. Tries again while partitions have no leader.
 * Returns false after a diagnostic, or without one if the user stopped the run. */
static bool ask(rd_kafka_t *client, struct kafka_errors *errors, const struct kafka_place *places,
                uint32_t count, int64_t what, int64_t *offsets, struct kafka_patience *patience,
                struct diag_list *diags)
{
    for (;;) {
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);
        for (uint32_t i = 0; i < count; i++)
            rd_kafka_topic_partition_list_add(list, places[i].topic, places[i].id)->offset = what;
        rd_kafka_resp_err_t err = rd_kafka_offsets_for_times(client, list, ANSWER_MS);
        uint32_t bad = 0;
        for (uint32_t i = 0; i < count && err == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
            const rd_kafka_topic_partition_t *found = &list->elems[i];
            err = found->err;
            offsets[i] = found->offset;
            bad = i;
        }
        rd_kafka_topic_partition_list_destroy(list);
        if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
            return true;
        if (err != RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED && kafka_patience_lasts(patience, errors)) {
            nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
            ask_leaders(client, errors, places, count, patience);
            continue;
        }
        if (err == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED) {
            struct diag *d = diag_error(diags, DIAG_KAFKA_FAILED, no_span,
                                        "cannot read the topic `%s`: not authorized", places[bad].topic);
            diag_hint(diags, d, "the user of `security` needs the rights Read and Describe on the topic");
        } else if (!kafka_patience_is_stopped(patience)) {
            kafka_errors_report(errors, err, diags, "ask where the partitions of `%s` begin and end",
                                places[bad].topic);
        }
        return false;
    }
}

void kafka_start_find_open(rd_kafka_t *client, struct kafka_errors *errors, const struct kafka_place *places,
                           uint32_t count, struct kafka_range *ranges)
{
    struct arena arena = {0};
    struct diag_list unheard;
    int64_t *offsets = arena_array(&arena, int64_t, count);
    diag_list_init(&unheard, &arena);
    struct kafka_patience patience = kafka_patience_silent(OPEN_WAIT_US);
    bool is_good = ask(client, errors, places, count, RD_KAFKA_OFFSET_END, offsets, &patience, &unheard);
    for (uint32_t i = 0; is_good && i < count; i++)
        ranges[i].open_end = offsets[i];
    arena_free(&arena);
}

static bool take_offsets(const struct kafka_start *start, const struct kafka_place *places, uint32_t count,
                         struct kafka_range *ranges, struct diag_list *diags)
{
    /* Offsets belong to partitions 0, 1 ... in order. */
    if (start->offsets_count != count || places[count - 1].id != (int32_t)count - 1) {
        diag_error(diags, DIAG_OUT_OF_RANGE, no_span,
                   "`start` has %u offsets, and the topic `%s` has %u partitions", start->offsets_count,
                   places[0].topic, count);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        ranges[i].first = start->offsets[i];
        if (ranges[i].first >= ranges[i].low && ranges[i].first <= ranges[i].high)
            continue;
        struct diag *d =
            diag_error(diags, DIAG_RECORDS_GONE, no_span, "`%s/%d` has no offset %lld: it has %lld to %lld",
                       places[i].topic, (int)places[i].id, (long long)ranges[i].first,
                       (long long)ranges[i].low, (long long)ranges[i].high);
        diag_hint(diags, d, "`start: earliest` begins with the oldest record");
        return false;
    }
    return true;
}

bool kafka_start_find(const struct kafka_start *start, rd_kafka_t *client, struct kafka_errors *errors,
                      const struct kafka_place *places, uint32_t count, struct kafka_range *ranges,
                      struct kafka_patience *patience, struct diag_list *diags)
{
    int64_t *offsets = mem_calloc(count, sizeof(*offsets));
    bool is_good = ask(client, errors, places, count, RD_KAFKA_OFFSET_BEGINNING, offsets, patience, diags);
    for (uint32_t i = 0; i < count; i++) {
        ranges[i].low = ranges[i].first = offsets[i];
        ranges[i].open_end = 0;
    }
    is_good = is_good && ask(client, errors, places, count, RD_KAFKA_OFFSET_END, offsets, patience, diags);
    for (uint32_t i = 0; i < count; i++) {
        ranges[i].high = offsets[i];
        if (start->tag == KAFKA_LATEST)
            ranges[i].first = offsets[i];
    }
    if (is_good && start->tag == KAFKA_AT_TIME) {
        is_good = ask(client, errors, places, count, start->time_ms, offsets, patience, diags);
        for (uint32_t i = 0; i < count; i++) /* no record is that young: begin at the end */
            ranges[i].first = offsets[i] < 0 ? ranges[i].high : MAX(offsets[i], ranges[i].low);
    }
    free(offsets);
    return is_good && (start->tag != KAFKA_AT_OFFSETS || take_offsets(start, places, count, ranges, diags));
}
