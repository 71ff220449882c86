#include "learners/train/input.h"

#include "core/base.h"
#include "core/mem.h"

#include <stdlib.h>

static size_t take(size_t *used, size_t count, size_t size)
{
    size_t at = *used;
    *used += (count * size + 255) / 256 * 256;
    return at;
}

/* Places the columns one after the other from base on (NULL: only counts); returns their bytes. First the
 * columns that a batch sends in one copy, then ids, of which only the used part is sent, then columns that
 * rarely change. */
static size_t lay_out(const struct train_input *in, struct train_columns *c, unsigned char *base)
{
    const struct model_options *o = in->options;
    size_t used = 0, n = in->capacity, places = in->places_max;
    size_t tables = take(&used, 2 * (size_t)o->fields + 1, sizeof(*c->tables));
    size_t offsets = take(&used, in->has_lists ? o->fields * (n + 1) + 1 : 0, sizeof(*c->offsets));
    size_t scales = take(&used, in->has_lists ? places : 0, sizeof(*c->scales));
    size_t dense = take(&used, (o->dense + 1) * n, sizeof(*c->dense));
    size_t labels = take(&used, MAX(o->labels, 1U) * n, sizeof(*c->labels));
    size_t weights = take(&used, n, sizeof(*c->weights)), rejected = take(&used, n, 1);
    size_t seen = take(&used, places, sizeof(*c->seen));
    size_t ids = take(&used, places, sizeof(*c->ids));
    size_t event = take(&used, places, sizeof(*c->event)), bag = take(&used, places, sizeof(*c->bag));
    if (base == NULL)
        return used;
    c->ids = (uint64_t *)(void *)(base + ids);
    c->tables = (uint32_t *)(void *)(base + tables);
    c->seen = (uint32_t *)(void *)(base + seen);
    c->event = (uint32_t *)(void *)(base + event);
    c->bag = (uint32_t *)(void *)(base + bag);
    c->offsets = in->has_lists ? (uint32_t *)(void *)(base + offsets) : NULL;
    c->scales = in->has_lists ? (float *)(void *)(base + scales) : NULL;
    c->dense = (float *)(void *)(base + dense);
    c->labels = (float *)(void *)(base + labels);
    c->weights = (float *)(void *)(base + weights);
    c->is_rejected = base + rejected;
    return used;
}

static uint32_t bag_of(const struct train_input *in, uint32_t field, uint32_t event)
{
    size_t at = (size_t)event * in->stride + in->vectors_from + (size_t)field * in->vector_floats;
    return (uint32_t)(at / 4);
}

/* Fills event and bag of each place: without lists they are the same in all batches of n events. Returns
 * whether they have changed since the last time. */
static bool fill_places(struct train_input *in)
{
    uint32_t n = in->n;
    if (in->has_lists || n == in->placed)
        return in->has_lists;
    in->placed = n;
    for (uint32_t f = 0; f < in->options->fields; f++) {
        for (uint32_t e = 0; e < n; e++) {
            in->host.event[(size_t)f * n + e] = e;
            in->host.bag[(size_t)f * n + e] = bag_of(in, f, e);
        }
    }
    return true;
}

uint32_t train_group_of(const struct model_options *options, const struct train_device *device,
                        uint32_t field)
{
    if (device->api == NULL)
        return field;
    return options->vectors > 0 && field >= options->vectors;
}

void train_input_shape(struct train_input *in, const struct model_options *options,
                       const struct train_device *device, uint32_t capacity, const struct net *net)
{
    *in = (struct train_input){.options = options,
                               .device = device,
                               .capacity = capacity,
                               .vectors_from = net->vectors_from,
                               .vector_floats = net->options.dim,
                               .stride = net->input->stride};
    for (uint32_t f = 0; f < options->fields; f++) {
        size_t each = model_field_ids(options, f);
        in->has_lists = in->has_lists || options->is_list[f];
        in->places_max += each * capacity;
        in->group_of[f] = train_group_of(options, device, f);
    }
    in->bytes = lay_out(in, &in->host, NULL);
}

size_t train_input_host_bytes(const struct train_input *in)
{
    size_t lists = in->has_lists ? in->places_max * sizeof(uint64_t) : 0;
    for (uint32_t f = 0; f < in->options->fields; f++)
        lists += in->options->is_list[f] ? ((size_t)in->capacity + 1) * sizeof(uint32_t) : 0;
    return in->bytes + lists + in->capacity * sizeof(*in->event_seen);
}

bool train_input_make(struct train_input *in, struct gpu_error *error)
{
    const struct model_options *options = in->options;
    uint32_t capacity = in->capacity;
    in->block = train_host_new(in->device, in->bytes, error);
    if (in->block == NULL)
        return false;
    lay_out(in, &in->host, in->block);
    for (uint32_t f = 0; f < options->fields; f++) {
        size_t each = model_field_ids(options, f);
        in->field_ids[f] = in->has_lists ? mem_calloc(each * capacity, sizeof(uint64_t))
                                         : in->host.ids + (size_t)f * capacity;
        in->field_offsets[f] =
            options->is_list[f] ? mem_calloc((size_t)capacity + 1, sizeof(uint32_t)) : NULL;
    }
    in->event_seen = mem_calloc(capacity, sizeof(*in->event_seen));
    for (uint32_t e = 0; e < capacity; e++)
        in->host.dense[(size_t)options->dense * capacity + e] = 1.0F;
    return true;
}

void train_input_take(struct train_input *in, struct train_memory *memory)
{
    in->there = in->host;
    if (in->device->api == NULL)
        return;
    unsigned char *base = train_take(memory, TRAIN_INPUT, in->bytes, 1);
    if (base != NULL)
        lay_out(in, &in->there, base);
}

void train_input_free(struct train_input *in)
{
    for (uint32_t f = 0; in->block && f < in->options->fields; f++) {
        if (in->has_lists)
            free(in->field_ids[f]);
        free(in->field_offsets[f]);
    }
    free(in->event_seen);
    if (in->block != NULL)
        train_host_free(in->device, in->block);
    *in = (struct train_input){0};
}

/* --- Adding events --- */

static void add_lists(struct train_input *in, uint32_t f, const struct train_events *events, uint32_t from,
                      uint32_t to)
{
    const uint32_t *offsets = events->in->offsets[f];
    uint32_t *own = in->field_offsets[f] + in->n;
    for (uint32_t i = from; i < to; i++, own++) {
        uint32_t count = MIN(offsets[i + 1] - offsets[i], model_field_ids(in->options, f));
        memcpy(in->field_ids[f] + own[0], events->in->ids[f] + offsets[i], count * sizeof(uint64_t));
        own[1] = own[0] + count;
    }
}

static void add_labels(struct train_input *in, const struct train_events *events, uint32_t from, uint32_t to)
{
    const struct model_options *o = in->options;
    const struct model_input *columns = events->in;
    size_t n = to - from;
    float *labels = in->host.labels + in->n, *weights = in->host.weights + in->n;
    memcpy(labels, columns->labels + from, n * sizeof(*labels));
    for (uint32_t l = 1; l < o->labels; l++)
        memcpy(labels + (size_t)l * in->capacity, columns->more_labels[l - 1] + from, n * sizeof(*labels));
    bool has_classes = o->loss == LOSS_LOGISTIC && o->labels <= 1;
    for (size_t i = 0; i < n; i++) {
        weights[i] = columns->weights != NULL ? columns->weights[from + i] : 1.0F;
        weights[i] *= has_classes ? o->class_weights[labels[i] > 0.5F] : 1.0F;
    }
}

/* Adds events from..to, column by column. */
static void add_run(struct train_input *in, const struct train_events *events, uint32_t from, uint32_t to)
{
    const struct model_options *o = in->options;
    size_t n = to - from;
    for (uint32_t f = 0; f < o->fields; f++) {
        if (in->field_offsets[f] != NULL)
            add_lists(in, f, events, from, to);
        else
            memcpy(in->field_ids[f] + in->n, events->in->ids[f] + from, n * sizeof(uint64_t));
    }
    for (uint32_t d = 0; d < o->dense; d++)
        memcpy(in->host.dense + (size_t)d * in->capacity + in->n, events->in->dense[d] + from,
               n * sizeof(float));
    add_labels(in, events, from, to);
    for (size_t i = 0; i < n; i++)
        in->host.is_rejected[in->n + i] =
            events->verdicts != NULL && events->verdicts[from + i] == MODEL_REJECTED;
    memcpy(in->event_seen + in->n, events->seen + from, n * sizeof(*in->event_seen));
    in->n += (uint32_t)n;
}

void train_input_add(struct train_input *in, const struct train_events *events, uint32_t from, uint32_t to)
{
    const uint8_t *learns = events->learns;
    for (uint32_t end; from < to; from = end) {
        bool is_added = learns == NULL || learns[from];
        end = from + 1;
        while (end < to && (learns == NULL || (bool)learns[end] == is_added))
            end++;
        leat_assert(!is_added || end - from <= in->capacity - in->n);
        if (is_added)
            add_run(in, events, from, end);
    }
}

/* --- Computing places --- */

/* Computes the places of field f and returns their number. before: places of its group's earlier fields;
 * first: its first place among all. */
static uint32_t spread_field(struct train_input *in, uint32_t f, size_t first, uint32_t before,
                             uint32_t *offsets)
{
    struct train_columns *c = &in->host;
    const uint32_t *own = in->field_offsets[f];
    size_t at = first;
    for (uint32_t e = 0; e < in->n; e++) {
        uint32_t from = own ? own[e] : e, count = own ? own[e + 1] - from : 1;
        offsets[e] = before + (uint32_t)(at - first);
        for (uint32_t i = 0; i < count; i++, at++) {
            c->ids[at] = in->field_ids[f][from + i];
            c->seen[at] = in->event_seen[e];
            c->event[at] = e;
            c->bag[at] = bag_of(in, f, e);
            c->scales[at] = 1.0F / (float)count;
        }
    }
    return (uint32_t)(at - first);
}

static void spread(struct train_input *in)
{
    size_t first = 0;
    for (uint32_t f = 0, places = 0; f < in->options->fields; f++) {
        if (f > 0 && in->group_of[f] != in->group_of[f - 1])
            places = 0;
        uint32_t *tables = in->host.tables + train_input_tables(in, f);
        uint32_t *offsets = in->host.offsets + train_input_offsets(in, f);
        in->first_of[f] = first;
        tables[0] = places;
        uint32_t count = spread_field(in, f, first, places, offsets);
        first += count, places += count;
        tables[1] = offsets[in->n] = places; /* tables[1]: again as tables[0] of the group's next field */
    }
}

/* Computes the places where no field is a list. If the input is not full, moves the fields' ids together. */
static void close_gaps(struct train_input *in)
{
    struct train_columns *c = &in->host;
    uint32_t fields = in->options->fields, n = in->n;
    for (uint32_t f = 0, places = 0; f < fields; f++, places += n) {
        uint32_t *tables = c->tables + train_input_tables(in, f);
        if (f > 0 && in->group_of[f] != in->group_of[f - 1])
            places = 0;
        tables[0] = places, tables[1] = places + n;
        if (n < in->capacity && f > 0)
            memmove(c->ids + (size_t)f * n, in->field_ids[f], n * sizeof(*c->ids));
        memcpy(c->seen + (size_t)f * n, in->event_seen, n * sizeof(*c->seen));
        in->first_of[f] = (size_t)f * n;
    }
}

static size_t places_of(const struct train_input *in)
{
    if (in->options->fields == 0)
        return 0;
    uint32_t last = in->options->fields - 1;
    const uint32_t *tables = in->host.tables + train_input_tables(in, last);
    return in->first_of[last] + (tables[1] - tables[0]);
}

/* Copies the columns from the host address `from` up to `to`, to the same offsets on the device. */
static void send(const struct train_input *in, const struct train_device *stream, const void *from,
                 const void *to)
{
    size_t at = (size_t)((const unsigned char *)from - in->block);
    size_t bytes = (size_t)((const unsigned char *)to - (const unsigned char *)from);
    /* `tables` is the first column */
    train_copy(stream, (unsigned char *)in->there.tables + at, from, bytes);
}

void train_input_finish(struct train_input *in, bool learns, const struct train_device *stream)
{
    bool has_others = learns && fill_places(in);
    if (in->has_lists)
        spread(in);
    else
        close_gaps(in);
    if (stream->api == NULL)
        return;
    const struct train_columns *c = &in->host;
    size_t places = places_of(in);
    send(in, stream, in->block, c->seen + places);
    send(in, stream, c->ids, c->ids + places);
    if (!has_others)
        return;
    send(in, stream, c->event, c->event + places);
    send(in, stream, c->bag, c->bag + places);
}

uint32_t train_input_entries(const struct train_input *in, uint32_t event, uint64_t *keys, uint16_t *fields,
                             float *scales)
{
    uint32_t entries = 0;
    for (uint32_t f = 0; f < in->options->fields; f++) {
        const uint32_t *own = in->field_offsets[f];
        uint32_t from = own ? own[event] : event, count = own ? own[event + 1] - from : 1;
        for (uint32_t i = 0; i < count; i++, entries++) {
            keys[entries] = in->field_ids[f][from + i];
            fields[entries] = (uint16_t)f;
            scales[entries] = 1.0F / (float)count;
        }
    }
    return entries;
}
