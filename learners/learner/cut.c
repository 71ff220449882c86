/*
 * Cuts of a learner: what it learned since the last cut, as bytes, for followers that answer requests
 * (core/operator.h). A cut: a head, then a section of each feature's table (tables/cut.h), then one of what else
 * predictions depend on (model_save_reader). All numbers as they are in memory.
 */
#include "learners/tables/cut.h"
#include "learners/learner/records.h"

#include "core/buffer.h"

enum { CUT_VERSION = 2 };
static const uint32_t CUT_MAGIC = 0x7475636c; /* "lcut" */
/* Cuts end here, and leave the epochs that follow to checkpoints. */
static const uint32_t EPOCH_LAST = UINT32_MAX - (1U << 24);

struct cut_head {
    uint32_t magic, version, fields, unused;
};

struct section_head {
    uint32_t table; /* the table's number (struct learner_state); CUT_MODEL: the last section */
    uint32_t unused;
    uint64_t bytes; /* which follow */
};
enum { CUT_MODEL = UINT16_MAX + 1 };

bool learner_cut_note(struct operator_context *context, bool is_on)
{
    struct learner_config *c = context->config;
    struct learner_state *s = c->state;
    s->notes_changes = false;
    if (is_on && s->epoch >= EPOCH_LAST)
        return false;
    if (s->gpu_api != NULL && !learner_device_cut_note(s, c->inputs.sparse_count, is_on))
        return false;
    for (uint32_t f = 0; f < c->inputs.sparse_count && s->gpu_api == NULL; f++)
        table_cut_note(model_table(s->model, f), is_on, s->epoch);
    s->epoch += is_on;
    s->notes_changes = is_on;
    return true;
}

static size_t begin_section(struct byte_buffer *out, uint32_t table)
{
    struct section_head head = {.table = table};
    buffer_append(out, &head, sizeof(head));
    return out->length;
}

/* begin: what begin_section returned. */
static void end_section(struct byte_buffer *out, size_t begin)
{
    uint64_t bytes = out->length - begin;
    memcpy(out->data + begin - sizeof(bytes), &bytes, sizeof(bytes));
}
_Static_assert(offsetof(struct section_head, bytes) + sizeof(uint64_t) == sizeof(struct section_head),
               "last");

bool learner_cut(struct operator_context *context, struct byte_buffer *out)
{
    struct learner_config *c = context->config;
    struct learner_state *s = c->state;
    struct cut_head head = {.magic = CUT_MAGIC, .version = CUT_VERSION, .fields = c->inputs.sparse_count};
    leat_assert(s->notes_changes);
    if (s->epoch >= EPOCH_LAST || (s->gpu_api != NULL && !learner_device_cut(s, head.fields)))
        return false;
    size_t cut_begin = out->length;
    buffer_append(out, &head, sizeof(head));
    for (uint32_t f = 0; f < head.fields; f++) {
        size_t begin = begin_section(out, s->tables[f]);
        if (s->gpu_api != NULL)
            learner_device_cut_write(s, f, out);
        else
            table_cut(model_table(s->model, f), s->epoch, out);
        end_section(out, begin);
    }
    s->epoch++;
    size_t begin = begin_section(out, CUT_MODEL);
    model_save_reader(s->model, out);
    end_section(out, begin);
    s->cut_model_bytes = out->length - begin;
    s->cut_bytes = out->length - cut_begin;
    return true;
}

size_t learner_cut_bytes(const struct operator_context *context)
{
    const struct learner_config *c = context->config;
    const struct learner_state *s = c->state;
    size_t bytes = s->cut_model_bytes;
    leat_assert(s->notes_changes);
    if (s->gpu_api != NULL) /* what has changed is known there alone */
        return s->cut_bytes;
    for (uint32_t f = 0; f < c->inputs.sparse_count; f++)
        bytes += table_cut_bytes(model_table(s->model, f));
    return bytes;
}

/* Takes the next section, which must be of that table, off the front of `left`; false: it is not there. */
static bool take_section(struct str *left, uint32_t table, struct str *section)
{
    struct section_head head;
    if (left->length < sizeof(head))
        return false;
    memcpy(&head, left->data, sizeof(head));
    if (head.table != table || head.bytes > left->length - sizeof(head))
        return false;
    *section = (struct str){left->data + sizeof(head), (size_t)head.bytes};
    *left = (struct str){section->data + section->length, left->length - sizeof(head) - section->length};
    return true;
}

bool learner_take_cut(struct operator_context *context, struct str bytes)
{
    struct learner_config *c = context->config;
    struct learner_state *s = c->state;
    struct cut_head head;
    struct str section;
    leat_assert(!s->notes_changes && s->snapshot == NULL);
    if (s->gpu_api != NULL || bytes.length < sizeof(head))
        return false;
    memcpy(&head, bytes.data, sizeof(head));
    if (head.magic != CUT_MAGIC || head.version != CUT_VERSION || head.fields != c->inputs.sparse_count)
        return false;
    bytes = (struct str){bytes.data + sizeof(head), bytes.length - sizeof(head)};
    for (uint32_t f = 0; f < head.fields; f++)
        if (!take_section(&bytes, s->tables[f], &section) ||
            !table_take_cut(model_table(s->model, f), section.data, section.length,
                            model_step_in_progress(s->model)))
            return false;
    return take_section(&bytes, CUT_MODEL, &section) && bytes.length == 0 &&
           model_load_reader(s->model, section.data, section.length);
}
