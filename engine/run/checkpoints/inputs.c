/* What a job reads besides its records (plan_input), in checkpoints: a resume says which of it has changed. The
 * list is told, never judged: who needs the same bytes compares them itself (operators/lookup, the fingerprint). */
#include "run/checkpoints/internal.h"

#include "run/base/words.h"

static const char part_name[] = "inputs";

enum { INPUTS_VERSION = 1, INPUTS_MAX = 4096, DIGEST_HEX = 32 };

/* An input in a checkpoint; texts point into the record. */
struct kept_input {
    enum plan_input_tag tag;
    int64_t bytes;
    struct str name, digest;
};

/* The job's inputs as they were when they were first asked for: files are read once. */
static const struct plan_input *inputs_now(struct checkpoints *c)
{
    if (c->measured == NULL)
        c->measured = plan_inputs_measured(c->run->plan, &c->run->arena);
    return c->measured;
}

void inputs_put(struct checkpoints *c, struct byte_buffer *out)
{
    const struct plan_input *inputs = inputs_now(c);
    uint32_t count = MIN(c->run->plan->inputs_count, (uint32_t)INPUTS_MAX);
    words_put(out, INPUTS_VERSION);
    words_put(out, count);
    for (uint32_t i = 0; i < count; i++) {
        words_put(out, inputs[i].tag);
        words_put(out, (uint64_t)inputs[i].bytes);
        words_put_text(out, inputs[i].name);
        words_put_text(out, str_from(inputs[i].digest));
    }
}

bool inputs_save(const struct checkpoints *c, struct checkpoint_writer *writer)
{
    return c->run->plan->inputs_count == 0 || snapshot_put(checkpoint_part(writer, part_name),
                                                           SNAPSHOT_GLOBAL, c->inputs.data, c->inputs.length);
}

/* Decodes the list; NULL: the bytes are none. They come from outside. */
static struct kept_input *decode(struct str record, struct arena *arena, uint32_t *count)
{
    struct words words = {.left = record};
    uint64_t version = words_take(&words), number = words_take(&words);
    if (version != INPUTS_VERSION || number > INPUTS_MAX)
        return NULL;
    struct kept_input *inputs = arena_array(arena, struct kept_input, MAX(number, 1));
    for (uint64_t i = 0; i < number; i++) {
        uint64_t tag = words_take(&words);
        inputs[i] =
            (struct kept_input){.tag = (enum plan_input_tag)tag, .bytes = (int64_t)words_take(&words)};
        inputs[i].name = words_take_text(&words);
        inputs[i].digest = words_take_text(&words);
        words.is_short |=
            tag > PLAN_INPUT_VALUE || (inputs[i].digest.length != 0 && inputs[i].digest.length != DIGEST_HEX);
    }
    *count = (uint32_t)number;
    return words.is_short || words.left.length > 0 ? NULL : inputs;
}

static const struct kept_input *find(const struct kept_input *inputs, uint32_t count,
                                     const struct plan_input *wanted)
{
    for (uint32_t i = 0; i < count; i++)
        if (inputs[i].tag == wanted->tag && str_equal(inputs[i].name, wanted->name))
            return &inputs[i];
    return NULL;
}

static const char *add_change(const char *all, struct arena *arena, const struct plan_input *now,
                              const struct kept_input *then)
{
    if (then == NULL || str_is(then->digest, now->digest))
        return all;
    return arena_printf(arena, "%s%s%s `%.*s` (%lld bytes then, %lld bytes now)", all == NULL ? "" : all,
                        all == NULL ? "" : ", ", plan_input_kind(now->tag), STR_ARGS(now->name),
                        (long long)then->bytes, (long long)now->bytes);
}

/* What has changed since the checkpoint, as text in the arena; NULL: nothing, or the checkpoint does not say. */
static const char *changes_since(const struct run *run, struct checkpoint *checkpoint, struct arena *arena)
{
    uint32_t group, count = 0;
    struct diag_list unused;
    struct str record;
    const char *all = NULL;
    if (run->plan->inputs_count == 0)
        return NULL;
    diag_list_init(&unused, arena);
    struct snapshot_reader *reader = checkpoint_reader(checkpoint, part_name, NULL, &unused);
    struct kept_input *then = NULL;
    while (
        snapshot_get(reader, &group, &record)) /* each checkpoint of a chain has the list: the last counts */
        then = decode(arena_str(arena, record), arena, &count);
    (void)!checkpoint_reader_close(reader);
    if (then == NULL)
        return NULL;
    const struct plan_input *now = inputs_now(run->checkpoints);
    for (uint32_t i = 0; i < run->plan->inputs_count; i++)
        all = add_change(all, arena, &now[i], find(then, count, &now[i]));
    return all;
}

void inputs_tell(struct run *run)
{
    struct arena arena = {0};
    const char *changes = run->is_resumed ? changes_since(run, run->resumed, &arena) : NULL;
    if (changes != NULL)
        run_note(run, "changed since the checkpoint: %s", changes);
    arena_free(&arena);
}

void inputs_explain_refusal(struct run *run)
{
    struct diag_list *diags = run->diags, unused;
    struct diag *refusal = diags->count == 0 ? NULL : &diags->items[diags->count - 1];
    if (refusal == NULL || refusal->code != DIAG_OTHER_JOB)
        return;
    struct arena arena = {0};
    diag_list_init(&unused, &arena);
    struct checkpoint_dir_options options = {.path = run->path, .read_only = true};
    struct checkpoint_dir *dir = checkpoint_dir_open(&options, &unused);
    struct checkpoint *newest = NULL;
    if (dir != NULL && checkpoint_find(dir, &newest, &unused) == CHECKPOINT_FOUND) {
        const char *changes = changes_since(run, newest, &arena);
        if (changes != NULL)
            diag_cause(diags, refusal, "changed since the checkpoint: %s", changes);
        checkpoint_close(newest);
    }
    checkpoint_dir_close(dir);
    arena_free(&arena);
}
