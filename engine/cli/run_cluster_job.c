#include "cli/run_cluster_job.h"

#include "cluster/coordination.h"
#include "core/civil.h"
#include "core/hex.h"
#include "core/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct pair {
    struct str name, value;
    uint32_t place; /* in the command line: of two pairs of one name, the later one may count */
};

static int compare_pairs(const void *left, const void *right)
{
    const struct pair *a = left, *b = right;
    size_t length = MIN(a->name.length, b->name.length);
    int order = memcmp(a->name.data, b->name.data, length);
    if (order != 0)
        return order;
    if (a->name.length != b->name.length)
        return a->name.length < b->name.length ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* Appends the pairs by name, each behind a newline and the flag. */
static void put_pairs(const char *flag, const struct job_pairs *pairs, struct byte_buffer *out)
{
    struct pair sorted[JOB_PAIRS_MAX];
    for (uint32_t i = 0; i < pairs->count; i++)
        sorted[i] = (struct pair){pairs->names[i], pairs->values[i], i};
    if (pairs->count > 1)
        qsort(sorted, pairs->count, sizeof(*sorted), compare_pairs);
    for (uint32_t i = 0; i < pairs->count; i++)
        buffer_printf(out, "\n%s%.*s=%.*s", flag, STR_ARGS(sorted[i].name), STR_ARGS(sorted[i].value));
}

void run_cluster_digest(const struct job_load *load, char digest[2 * CHECKPOINT_DIGEST_BYTES + 1])
{
    struct byte_buffer text = {0};
    uint8_t bytes[CHECKPOINT_DIGEST_BYTES];
    buffer_append(&text, load->source.text.data, load->source.text.length);
    put_pairs("", &load->settings, &text);
    if (load->is_replay)
        buffer_printf(&text, "\n--replay");
    put_pairs("--replay=", &load->replays, &text);
    put_pairs("--sink=", &load->sinks, &text);
    checkpoint_digest_of((struct str){text.data, text.length}, bytes);
    hex_text(bytes, sizeof(bytes), digest);
    buffer_free(&text);
}

static void put_flag(const char *flag, const char *value, struct byte_buffer *out)
{
    if (value != NULL)
        buffer_printf(out, "%s--%s=%s", out->length > 0 ? " " : "", flag, value);
}

const char *run_cluster_same(const struct run_options *options, struct arena *arena)
{
    struct byte_buffer out = {0};
    char until[33] = "", move[24];
    if (options->until_us != TIME_MAX)
        until[civil_format(options->until_us, until)] = '\0';
    put_flag("from", options->from, &out);
    for (uint32_t i = 0; i < options->drops_count; i++)
        put_flag("drop-state", options->drops[i], &out);
    put_flag("until", options->until_us != TIME_MAX ? until : NULL, &out);
    put_flag("order", options->order, &out);
    put_flag("record-order", options->record_order, &out);
    put_flag("balance", !options->balances ? "no" : options->moves_when_asked ? "asked" : NULL, &out);
    snprintf(move, sizeof(move), "%" PRIu64, options->move_seed);
    put_flag("move", options->move_seed == 0 ? NULL : move, &out);
    const char *text = arena_strndup(arena, out.length > 0 ? out.data : "", out.length);
    buffer_free(&out);
    return text;
}

struct str run_cluster_version(void)
{
    const char *given = getenv("LEAT_TEST_VERSION");
    return given != NULL && strlen(given) <= COORDINATION_NAME_BYTES_MAX ? str_from(given)
                                                                         : STR(LEAT_VERSION);
}

uint32_t run_cluster_lanes(const struct run_options *options, const struct plan *plan)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t lanes = options->lanes > 0 ? options->lanes : plan->config.workers;
    return lanes > 0 ? (uint32_t)lanes : cores > 0 ? (uint32_t)MIN(cores, 256) : 1;
}

struct run_options run_cluster_life(const struct run_options *given, struct str head, bool is_first)
{
    struct run_options options = *given;
    options.take_over = true;
    options.head = head;
    if (options.from == NULL || head.length == 0)
        return options;
    if (is_first)
        log_say(LOG_LEVEL_INFO, "the job has a head, and goes on from that: --from `%s` was its beginning",
                options.from);
    options.mode = RUN_AUTO;
    options.may_repeat = false;
    return options;
}

void run_cluster_say_diags(const struct diag_list *diags)
{
    for (unsigned i = 0; i < diags->count; i++)
        log_say(LOG_LEVEL_WARNING, "%s%s%s", diags->items[i].message,
                diags->items[i].cause != NULL ? ": " : "",
                diags->items[i].cause != NULL ? diags->items[i].cause : "");
}
