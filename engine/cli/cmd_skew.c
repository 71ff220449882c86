/* leat skew JOB SERVED TRAINED: compares what was served with what training made of the same rows, column by column. */
#include "cli/argp.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/rows_file.h"

#include "core/key.h"
#include "core/mem.h"
#include "formats/formats.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEY_SET = 256, KEY_ON, KEY_SERVE, KEY_JSON, EXAMPLE_BYTES = 64 };

struct skew_arguments {
    struct job_load load;
    const char *served, *trained, *on, *serve;
    bool is_json;
};

static const struct argp_option options_table[] = {
    {"on", KEY_ON, "COLUMN", 0, "the column by which rows are matched, for example an impression's id", 0},
    {"set", KEY_SET, "NAME=VALUE", 0, "as given to the run", 0},
    {"serve", KEY_SERVE, "NAME", 0, "which `serve` of the job, if it has several", 0},
    {"json", KEY_JSON, NULL, 0, "the result as JSON", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct skew_arguments *a = state->input;
    switch (key) {
    case KEY_SET:
        if (!job_pair_add(&a->load.settings, argument))
            argp_error(state, "--set takes NAME=VALUE, not `%s`", argument);
        return 0;
    case KEY_ON: a->on = argument; return 0;
    case KEY_SERVE: a->serve = argument; return 0;
    case KEY_JSON: a->is_json = true; return 0;
    case ARGP_KEY_ARG:
        if (a->load.path == NULL)
            a->load.path = argument;
        else if (a->served == NULL)
            a->served = argument;
        else if (a->trained == NULL)
            a->trained = argument;
        else
            argp_error(state,
                       "give a job and two files; a pattern in quotes names several: 'out/served-*.jsonl'");
        return 0;
    case ARGP_KEY_END:
        if (a->trained == NULL || a->on == NULL)
            argp_error(state, "give a job, the log, the trained rows and --on, for example `leat skew "
                              "jobs/ctr.leat 'out/served-*.jsonl' out/scored.jsonl --on imp_id`");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- Served rows, by the value of the column --on --- */

struct served_row {
    struct key key;
    struct batch *batch;
    uint32_t row, next; /* next: another row of the same hash, from 1; 0: none */
    bool is_matched;
};

struct served_rows {
    struct served_row *items;
    uint32_t count, capacity;
    uint32_t *heads; /* by hash: the newest row, from 1; a power of two of them */
    uint32_t heads_count;
    uint64_t bad;
};

/* Says why the first line of a file cannot be compared. */
static void say_unread(const char *path, uint64_t bad, const char *reason)
{
    if (bad == 0)
        fprintf(stderr, "leat: %s: a line cannot be compared: %s\n", path,
                reason == NULL ? "the column of --on is null" : reason);
}

/* What became of a column. */
struct column_skew {
    uint64_t equal, differ, only_served, only_trained; /* only_...: the other value is null */
    double largest;                                    /* difference of numbers */
    char example[EXAMPLE_BYTES];
};

struct skew {
    struct skew_arguments *arguments;
    struct schema *schema; /* of both files */
    uint32_t key;          /* column --on */
    struct batch_pool *pool;
    struct served_rows served;
    struct column_skew *columns;
    uint64_t trained, trained_bad, matched;
    struct key keys[BATCH_ROWS]; /* of the batch in work, by row */
    bool has_null[BATCH_ROWS];
};

static void encode(struct skew *skew, const struct batch *batch)
{
    int column = (int)skew->key;
    leat_assert(batch->selected == batch->rows);
    key_encode(batch, &column, 1, skew->keys, skew->has_null);
}

static void grow(struct skew *skew)
{
    struct served_rows *rows = &skew->served;
    rows->heads_count = rows->heads_count == 0 ? 1024 : rows->heads_count * 2;
    rows->capacity = rows->heads_count;
    rows->items = mem_realloc(rows->items, rows->capacity * sizeof(*rows->items));
    free(rows->heads);
    rows->heads = mem_calloc(rows->heads_count, sizeof(*rows->heads));
    for (uint32_t i = 0; i < rows->count; i++) {
        struct served_row *item = &rows->items[i];
        uint32_t *head = &rows->heads[key_hash(item->key) & (rows->heads_count - 1)];
        item->next = *head;
        *head = i + 1;
    }
}

static void keep(struct skew *skew, struct batch *batch, const char **reasons)
{
    struct served_rows *rows = &skew->served;
    encode(skew, batch);
    for (uint32_t row = 0; row < batch->rows; row++) {
        if (reasons[row] != NULL || skew->has_null[row]) {
            say_unread(skew->arguments->served, rows->bad, reasons[row]);
            rows->bad++;
            continue;
        }
        if (rows->count == rows->capacity)
            grow(skew);
        uint32_t *head = &rows->heads[key_hash(skew->keys[row]) & (rows->heads_count - 1)];
        batch_hold(batch);
        rows->items[rows->count++] =
            (struct served_row){.key = skew->keys[row], .batch = batch, .row = row, .next = *head};
        *head = rows->count;
    }
}

/* --- Comparison --- */

static bool is_number(enum type_tag tag)
{
    return tag == TYPE_INT || tag == TYPE_FLOAT || tag == TYPE_TIME;
}

static double number_of(const struct column *column, uint32_t row)
{
    return column->tag == TYPE_FLOAT ? column->floats[row] : (double)column->ints[row];
}

static bool is_equal(const struct column *a, uint32_t i, const struct column *b, uint32_t k)
{
    switch (a->tag) {
    case TYPE_BOOL: return a->bools[i] == b->bools[k];
    case TYPE_INT:
    case TYPE_TIME: return a->ints[i] == b->ints[k];
    case TYPE_FLOAT: return a->floats[i] == b->floats[k] || (isnan(a->floats[i]) && isnan(b->floats[k]));
    case TYPE_TEXT:
    case TYPE_BYTES: return str_equal(column_text(a, i), column_text(b, k));
    default: break;
    }
    bool is_same = a->lists[i].length == b->lists[k].length;
    for (uint32_t c = 0; c < a->children_count && is_same; c++)
        for (uint32_t e = 0; e < a->lists[i].length && is_same; e++) {
            const struct column *x = &a->children[c], *y = &b->children[c];
            uint32_t at = a->lists[i].offset + e, to = b->lists[k].offset + e;
            bool has_x = column_is_valid(x, at), has_y = column_is_valid(y, to);
            is_same = has_x == has_y && (!has_x || is_equal(x, at, y, to));
        }
    return is_same;
}

static void note_example(struct skew *skew, struct column_skew *found, const struct batch *batch,
                         uint32_t row)
{
    struct byte_buffer text = {0};
    if (found->example[0] != '\0')
        return;
    format_json_value(&batch->columns[skew->key], &skew->schema->fields[skew->key].type, row, &text);
    snprintf(found->example, sizeof(found->example), "%.*s", (int)text.length, text.data);
    buffer_free(&text);
}

static void compare(struct skew *skew, const struct served_row *served, const struct batch *trained,
                    uint32_t row)
{
    for (uint32_t i = 0; i < skew->schema->count; i++) {
        const struct column *a = &served->batch->columns[i], *b = &trained->columns[i];
        struct column_skew *found = &skew->columns[i];
        bool has_a = column_is_valid(a, served->row), has_b = column_is_valid(b, row);
        if (has_a != has_b) {
            *(has_a ? &found->only_served : &found->only_trained) += 1;
            note_example(skew, found, trained, row);
        } else if (!has_a || is_equal(a, served->row, b, row)) {
            found->equal++;
        } else {
            found->differ++;
            if (is_number(a->tag))
                found->largest = fmax(found->largest, fabs(number_of(a, served->row) - number_of(b, row)));
            note_example(skew, found, trained, row);
        }
    }
}

static void match(struct skew *skew, const struct batch *batch, const char **reasons)
{
    struct served_rows *rows = &skew->served;
    encode(skew, batch);
    for (uint32_t row = 0; row < batch->rows; row++) {
        bool is_good = reasons[row] == NULL && !skew->has_null[row];
        skew->trained++;
        if (!is_good)
            say_unread(skew->arguments->trained, skew->trained_bad, reasons[row]);
        skew->trained_bad += !is_good;
        if (!is_good || rows->count == 0)
            continue;
        struct key key = skew->keys[row];
        uint32_t next = rows->heads[key_hash(key) & (rows->heads_count - 1)];
        for (; next != 0; next = rows->items[next - 1].next) {
            struct served_row *item = &rows->items[next - 1];
            if (item->is_matched || !key_equal(item->key, key))
                continue;
            item->is_matched = true;
            skew->matched++;
            compare(skew, item, batch, row);
        }
    }
}

/* --- The files --- */

static bool read_file(struct skew *skew, const char *path, const char *what, bool is_served)
{
    struct diag_list *diags = &skew->arguments->load.diags;
    struct rows_file *file = rows_file_open(&builtin_registry, path, what, skew->schema, skew->pool, diags);
    struct batch *batch;
    const char **reasons;
    enum rows_status status = ROWS_READ;
    while (file != NULL && status != ROWS_END) {
        status = rows_file_next(file, &batch, &reasons);
        if (status != ROWS_READ)
            continue;
        if (is_served)
            keep(skew, batch, reasons);
        else
            match(skew, batch, reasons);
        batch_release(batch);
    }
    rows_file_close(file);
    return diags->errors == 0;
}

/* The columns of an answer that have a value. */
static bool set_schema(struct skew *skew, const struct plan_serve *serve)
{
    static const struct schema empty;
    struct skew_arguments *a = skew->arguments;
    const struct schema *answer = plan_answer_schema(a->load.plan, serve);
    skew->schema = schema_copy(&a->load.arena, &empty, answer->count);
    for (uint32_t i = 0; i < answer->count; i++) {
        if (serve->is_hidden[i])
            continue;
        struct field *field = schema_add(skew->schema, answer->fields[i].name, answer->fields[i].type);
        field->type.unit = TIME_UNIT_RFC3339;
    }
    skew->columns = arena_array(&a->load.arena, struct column_skew, MAX(skew->schema->count, 1));
    int key = schema_find(skew->schema, str_from(a->on));
    if (key >= 0 && skew->schema->fields[key].type.tag != TYPE_LIST) {
        skew->key = (uint32_t)key;
        return true;
    }
    struct diag *d = diag_error(&a->load.diags, DIAG_NO_COLUMN, (struct span){0},
                                key < 0 ? "--on: an answer has no column `%s`"
                                        : "--on: `%s` is a list, by which rows cannot be matched",
                                a->on);
    const char *near =
        diag_nearest(str_from(a->on), schema_names(&a->load.arena, skew->schema), skew->schema->count);
    if (key < 0 && near != NULL)
        diag_hint(&a->load.diags, d, "did you mean `%s`?", near);
    return false;
}

/* --- The result --- */

static void print_text(const struct skew *skew)
{
    const struct served_rows *served = &skew->served;
    printf("%u served rows, %" PRIu64 " of them trained (%" PRIu64 " lines left out); %" PRIu64
           " trained rows (%" PRIu64 " left out)\n\n",
           served->count, skew->matched, served->bad, skew->trained, skew->trained_bad);
    printf("%-24s %10s %10s %12s %12s %12s  %s\n", "column", "equal", "differ", "only served", "only trained",
           "largest", "example");
    for (uint32_t i = 0; i < skew->schema->count; i++) {
        const struct column_skew *c = &skew->columns[i];
        char largest[32] = "";
        if (c->largest > 0.0)
            snprintf(largest, sizeof(largest), "%.6g", c->largest);
        printf("%-24.*s %10" PRIu64 " %10" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12s  %s\n",
               STR_ARGS(skew->schema->fields[i].name), c->equal, c->differ, c->only_served, c->only_trained,
               largest, c->example);
    }
}

static void print_json(const struct skew *skew)
{
    const struct served_rows *served = &skew->served;
    printf("{\"served\":%u,\"served_left_out\":%" PRIu64 ",\"trained\":%" PRIu64
           ",\"trained_left_out\":%" PRIu64 ",\"matched\":%" PRIu64 ",\"columns\":[",
           served->count, served->bad, skew->trained, skew->trained_bad, skew->matched);
    for (uint32_t i = 0; i < skew->schema->count; i++) {
        const struct column_skew *c = &skew->columns[i];
        printf("%s{\"name\":\"%.*s\",\"equal\":%" PRIu64 ",\"differ\":%" PRIu64 ",\"only_served\":%" PRIu64
               ",\"only_trained\":%" PRIu64 ",\"largest\":%.17g}",
               i == 0 ? "" : ",", STR_ARGS(skew->schema->fields[i].name), c->equal, c->differ, c->only_served,
               c->only_trained, c->largest);
    }
    printf("]}\n");
}

static bool skew_files(struct skew_arguments *a)
{
    static struct skew skew;
    skew = (struct skew){.arguments = a, .pool = batch_pool_new()};
    const struct plan_serve *serve = job_serve(&a->load, a->serve);
    bool is_good = serve != NULL && set_schema(&skew, serve) &&
                   read_file(&skew, a->served, "the log", true) &&
                   read_file(&skew, a->trained, "the trained rows", false);
    if (is_good && a->is_json)
        print_json(&skew);
    else if (is_good)
        print_text(&skew);
    if (is_good && skew.matched == 0) {
        fprintf(stderr,
                "leat: nothing was compared: of %u served and %" PRIu64
                " trained rows no two have the same `%s`; "
                "are both files of the same events, and does `--on` name what tells events apart?\n",
                skew.served.count, skew.trained, a->on);
        is_good = false;
    }
    for (uint32_t i = 0; i < skew.served.count; i++)
        batch_release(skew.served.items[i].batch);
    free(skew.served.items);
    free(skew.served.heads);
    batch_pool_free(skew.pool);
    return is_good;
}

int cmd_skew(int argc, char **argv)
{
    static const struct argp argp = {
        options_table,
        parse,
        "JOB SERVED TRAINED --on COLUMN",
        "Compares served rows with trained rows, column by column.\vSERVED is the log that a `serve` with `log:` "
        "writes, TRAINED what a sink wrote of the stream that the `serve` names as `from`; either may be a "
        "pattern in quotes, or a recording of a topic (`leat record`). Rows with the same value of COLUMN are compared; the first trained row counts. "
        "Features differ where events came between the request and the row, scores where the model learned in "
        "between. The log lies in memory.",
        0,
        0,
        0};
    struct skew_arguments arguments = {0};
    argp_command(&argp, argc, argv, &arguments);
    int status = EXIT_BAD_JOB;
    if (job_load(&arguments.load))
        status = skew_files(&arguments) ? EXIT_GOOD : EXIT_FAILED;
    job_print_diags(&arguments.load);
    job_free(&arguments.load);
    return status;
}
