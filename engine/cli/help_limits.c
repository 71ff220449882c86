/* leat help limits: the constants of limits.def, by name and value, and the bounds of every option. */
#include "cli/help.h"
#include "cli/job.h"
#include "cluster/coordination.h"
#include "connectors/kafka/meta.h"
#include "connectors/kafka/record.h"
#include "connectors/kafka/watch.h"
#include "control/metrics.h"
#include "core/ast.h"
#include "core/learner.h"
#include "core/placement.h"
#include "formats/avro.h"
#include "formats/csv.h"
#include "formats/json_read.h"
#include "formats/payload.h"
#include "formats/protobuf.h"
#include "formats/rows.h"
#include "formats/schema_registry.h"
#include "lang/lang.h"
#include "learners/items/numbers.h"
#include "learners/model/model.h"
#include "learners/retrieval/ranks.h"
#include "learners/sequential/sequential.h"
#include "net/net.h"
#include "operators/aggregate/aggregate.h"
#include "operators/expr/expr.h"
#include "operators/join/key_rows.h"
#include "operators/limits.h"
#include "operators/pattern/sequence.h"
#include "operators/rows/ordering.h"
#include "operators/rows/versions.h"
#include "operators/user/user.h"
#include "operators/window/windows.h"
#include "plan/plan.h"
#include "run/base/base.h"
#include "run/run.h"
#include "serve/infer.h"
#include "serve/server.h"
#include "state/checkpoint.h"
#include "state/checkpoint_files.h"
#include "state/objects/objects.h"
#include "state/table.h"

enum unit { COUNT, BYTES };

struct limit {
    const char *section; /* title of the rows that follow; NULL: the row is a limit */
    const char *name, *what;
    enum unit unit;
    int64_t value;
};

static const struct limit limits[] = {
#define SECTION(title)              {.section = (title)},
#define LIMIT(constant, kind, text) {.name = #constant, .what = (text), .unit = (kind), .value = (constant)},
#include "cli/limits.def"
#undef SECTION
#undef LIMIT
};

/* The value as text: "1 MiB", "20,000" or "20,000 bytes". */
static const char *value_text(struct arena *arena, const struct limit *limit)
{
    static const char *const units[] = {"KiB", "MiB", "GiB"};
    char digits[32], grouped[48];
    size_t length = (size_t)snprintf(digits, sizeof(digits), "%lld", (long long)limit->value), out = 0;
    if (limit->unit == BYTES)
        for (int u = 2; u >= 0; u--)
            if (limit->value >= INT64_C(1) << (10 * (u + 1)) &&
                limit->value % (INT64_C(1) << (10 * (u + 1))) == 0)
                return arena_printf(arena, "%lld %s", (long long)(limit->value >> (10 * (u + 1))), units[u]);
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            grouped[out++] = ',';
        grouped[out++] = digits[i];
    }
    return arena_printf(arena, "%.*s%s", (int)out, grouped, limit->unit == BYTES ? " bytes" : "");
}

/* Adds the section whose title is row `at`, with the limits that follow it. */
static void add_limits(struct help *help, struct help_page *page, uint32_t at)
{
    struct help_fact *facts = arena_array(&help->arena, struct help_fact, ARRAY_COUNT(limits));
    uint32_t count = 0;
    for (uint32_t i = at + 1; i < ARRAY_COUNT(limits) && limits[i].section == NULL; i++)
        facts[count++] =
            (struct help_fact){.name = limits[i].name,
                               .text = arena_printf(&help->arena, "%s: %s",
                                                    value_text(&help->arena, &limits[i]), limits[i].what)};
    leat_assert(page->count < HELP_SECTIONS_MAX);
    page->sections[page->count++] = (struct help_section){limits[at].section, facts, count};
}

/* Returns `text` and, appended, the bounds of the table's options: "within 1ms to 365d, keep ...". before:
 * prefix of the names. */
static const char *bounds_of(struct arena *arena, const struct option *table, const char *before,
                             const char *text)
{
    for (struct option_walk w = option_walk(table); option_next(&w);) {
        const struct option_row *o = &w.row;
        const char *name = arena_printf(arena, "%s%s", before, o->name), *comma = text[0] == '\0' ? "" : ", ";
        if (o->min_text != NULL && o->max_text != NULL)
            text = arena_printf(arena, "%s%s%s %s to %s", text, comma, name, o->min_text, o->max_text);
        else if (o->max_text != NULL)
            text = arena_printf(arena, "%s%s%s at most %s", text, comma, name, o->max_text);
        else if (o->min_text != NULL)
            text = arena_printf(arena, "%s%s%s at least %s", text, comma, name, o->min_text);
        if (o->type == OPTION_BLOCK_T)
            text = bounds_of(arena, o->block, arena_printf(arena, "%s.", name), text);
    }
    return text;
}

/* Adds the largest number of values that aggregates can return: top(x, 128). */
static void add_aggregates(struct help *help, struct help_page *page)
{
    static const struct aggregate_kind *const kinds[] = {
#define AGGREGATE_KIND(symbol) &symbol,
#include "operators/aggregate/kinds.def"
#undef AGGREGATE_KIND
    };
    struct help_fact *facts = arena_array(&help->arena, struct help_fact, ARRAY_COUNT(kinds));
    uint32_t count = 0;
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        bool is_known = kinds[i]->parameter != PARAMETER_COUNT;
        for (uint32_t k = 0; k < count && !is_known; k++)
            is_known = strcmp(facts[k].name, kinds[i]->name) == 0;
        if (!is_known)
            facts[count++] = (struct help_fact){
                kinds[i]->name, arena_printf(&help->arena, "1 to %u values", kinds[i]->parameter_max), NULL};
    }
    leat_assert(page->count < HELP_SECTIONS_MAX);
    page->sections[page->count++] = (struct help_section){"aggregates", facts, count};
}

static void add_bounds(struct help *help, struct help_page *page)
{
    struct help_fact *facts = arena_array(&help->arena, struct help_fact, help->count + 1);
    uint32_t count = 0;
    const char *every = bounds_of(&help->arena, source_options, "", "");
    if (every[0] != '\0')
        facts[count++] = (struct help_fact){"every source", every, NULL};
    for (uint32_t i = 0; i < help->count; i++) {
        const struct help_entry *e = &help->entries[i];
        const char *text = e->is_copy ? "" : bounds_of(&help->arena, e->options, "", "");
        if (text[0] != '\0')
            facts[count++] = (struct help_fact){
                arena_printf(&help->arena, "%s %s", help_groups[e->group].singular, e->name), text, NULL};
    }
    leat_assert(page->count < HELP_SECTIONS_MAX);
    page->sections[page->count++] =
        (struct help_section){"options (`leat help NAME` explains each)", facts, count};
}

struct help_page help_limits(struct help *help)
{
    struct help_page page = {
        .name = "limits",
        .summary = "limits of sizes, lengths and numbers",
        .intro =
            "What exceeds a limit is refused with a message, or is a bad record; nothing is cut silently. "
            "Memory is limited by `memory:` of the job, files and all else by the system: if the system "
            "refuses memory or a thread, leat ends with status 71."};
    for (uint32_t i = 0; i < ARRAY_COUNT(limits); i++)
        if (limits[i].section != NULL)
            add_limits(help, &page, i);
    add_aggregates(help, &page);
    add_bounds(help, &page);
    return page;
}
