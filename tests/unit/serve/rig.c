#include "rig.h"

#include "cli/commands.h"
#include "core/mem.h"

#include <stdio.h>
#include <stdlib.h>

static const char job_text[] =
    "job rig { checkpoint: { dir: \"state\" } }\n"
    "source events = file { path: \"events.jsonl\"\n"
    "  schema: { id: int!, ts: time(ms), flag: bool, n: int, f: float!,\n"
    "    s: text, raw: bytes, day: time(rfc3339), sec: time(s), nano: time(ns),\n"
    "    li: list(int), lf: list(float), lt: list(text), lb: list(bool), lr: list(bytes), ld: list(time(ms)),\n"
    "    recs: list({ a: int, b: text }), deep: list(list(int)), extra: int! }\n"
    "  event_time: ts, max_delay: 5s, max_jump: 1h }\n"
    "source plain = file { path: \"plain.jsonl\", schema: { a: int!, b: text! } }\n"
    "stream answers = events | with twice = f * 2.0, big = n + 1 | drop extra\n"
    "stream counted = events | with k = len(recs)\n"
    "stream simple = plain | with c = a + 1, d = lower(b), _status = a\n"
    "serve all { from: answers, request: events }\n"
    "serve nested { from: counted, request: events }\n"
    "serve timeless { from: simple, request: plain }\n"
    "sink one = file from answers { path: \"out.batches\" }\n"
    "sink two = file from counted { path: \"out2.batches\" }\n"
    "sink three = file from simple { path: \"out3.batches\" }\n";

const struct plan_serve *rig_serve(const struct rig *rig, const char *name)
{
    for (uint32_t i = 0; i < rig->plan->serves_count; i++)
        if (str_is(rig->plan->serves[i].name, name))
            return &rig->plan->serves[i];
    return NULL;
}

struct rig *rig_new(void)
{
    struct rig *rig = mem_calloc(1, sizeof(*rig));
    struct diag_list diags;
    diag_list_init(&diags, &rig->arena);
    struct job_file *job = lang_parse(&rig->arena, &diags, &builtin_registry, STR(job_text));
    struct lang_settings settings = {0};
    bool is_good = lang_expand(job, &rig->arena, &diags, &settings);
    struct plan_options options = {.registry = &builtin_registry};
    rig->plan = is_good ? plan_make(job, &options, &rig->arena, &diags) : NULL;
    if (rig->plan == NULL) {
        struct diag_source source = {"rig", STR(job_text)};
        diag_print(stderr, &diags, &source, false);
        abort();
    }
    rig->pool = batch_pool_new();
    rig->model = infer_model_new(rig->plan, rig_serve(rig, "all"));
    return rig;
}

void rig_free(struct rig *rig)
{
    infer_model_free(rig->model);
    batch_pool_free(rig->pool);
    arena_free(&rig->call);
    arena_free(&rig->arena);
    free(rig);
}

bool rig_read(struct rig *rig, const struct infer_model *model, const char *json,
              struct infer_request *request, uint32_t *rows, struct infer_problem *problem)
{
    size_t length = strlen(json);
    return infer_json_read((struct str){json, length}, length, request, &rig->call, problem) &&
           infer_check(model, request, RIG_NOW_US, 0, rows, &rig->call, problem);
}

struct batch *rig_fill(struct rig *rig, const struct infer_model *model, const struct infer_request *request,
                       uint32_t rows, uint32_t step)
{
    struct batch *batch = infer_batch(model, rig->pool, rows);
    /* A new batch holds anything. */
    for (uint32_t i = 0; i < batch->schema->count; i++)
        memset(batch->columns[i].data, 0xa5,
               rows * (batch->columns[i].tag == TYPE_BOOL ? 1 : sizeof(int64_t)));
    for (uint32_t at = 0; at < rows; at += step)
        infer_fill(model, request, RIG_NOW_US, at, MIN(step, rows - at), batch, at);
    return batch;
}

void rig_digest(const struct batch *batch, char hex[33])
{
    struct batch_digest *digest = batch_digest_new();
    batch_digest_add(digest, batch);
    batch_digest_hex(digest, hex);
    batch_digest_free(digest);
}

struct batch *rig_answers(struct rig *rig, struct batch *requests)
{
    const struct schema *schema = plan_answer_schema(rig->plan, rig_serve(rig, "all"));
    struct batch *answers = batch_derive(requests, schema);
    for (uint32_t i = 0; i < schema->count; i++) {
        int from = schema_find(requests->schema, schema->fields[i].name);
        if (from >= 0) {
            answers->columns[i] = requests->columns[from];
            continue;
        }
        bool is_twice = str_is(schema->fields[i].name, "twice");
        const struct column *source =
            &requests->columns[schema_find(requests->schema, is_twice ? STR("f") : STR("n"))];
        batch_column_init(answers, &answers->columns[i], schema->fields[i].type, requests->rows);
        answers->columns[i].valid = source->valid;
        for (uint32_t row = 0; row < requests->rows; row++)
            if (is_twice)
                answers->columns[i].floats[row] = source->floats[row] * 2;
            else
                answers->columns[i].ints[row] = source->ints[row] + 1;
    }
    return answers;
}
