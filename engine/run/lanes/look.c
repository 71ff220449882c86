/* What the columns hold, for people who watch a run: a lane now and then looks at a batch that a source lets go, or that a
 * learner or a sink is given, and adds up to ROWS_MAX of its rows to sketches (core/sketch.h). Nothing on the data path
 * reads them. Rows are chosen one of each stretch of the batch, at random within it, so that a pattern that repeats in the
 * data does not choose for us.
 *
 * Cost: each instance of a node measures what looks take by the clock, as the lane's time is measured, so that a lane that
 * waits for a core pays for it in both; and rests for so long that all those of a lane together take one part in SHARE of
 * its time. It goes by the mean of some looks: one that lost its core in the middle makes many rests longer, not one very
 * long. A batch for which it is not time costs a comparison with the clock that the lane has read anyway; a run that
 * nobody asks costs a branch.
 *
 * Each instance has sketches of its own and a mutex, which its lane takes once a look, and never waits for: who reads
 * holds it while it copies a column, and a look that comes then is left out. At most SKETCHED columns of a job have
 * sketches, in the order of the plan: of the others nulls are counted. A sketch has at most 8 KiB, in each lane. */
#include "run/lanes/internal.h"

#include "core/mem.h"
#include "core/os.h"

#include <math.h>
#include <stdlib.h>
#include <xxhash.h>

enum {
    SKETCHED = 256,
    ROWS_MAX = 128,    /* of a look */
    ROWS_LEAST = 16,   /* of a look at many columns */
    VALUES_MAX = 4096, /* of a look, unless ROWS_LEAST rows have more */
    ELEMENTS_MAX = 16, /* of a list */
    TEXT_HASHED = 256, /* first bytes of a value that tell it from others, with its length */
    SHARE = 333,       /* 0.3 % */
    REST_MAX_S = 10,   /* between two looks, so that both spans have some */
    COST_LEAST_NS = 1000,
    COSTS_KEPT = 8, /* a look has this part in the mean of their costs */
    SPAN_S = 10,    /* of a slot */
    RECENT = 6,     /* slots: the last minute, of which the newest is not full yet */
    BEFORE = 60,    /* slots: the ten minutes before */
    SLOTS_KEPT = RECENT + BEFORE,
};

struct look_sketch {
    struct sketch_distinct distinct;
    struct sketch_numbers numbers;
    struct sketch_top top;
    double sums[SLOTS_KEPT];
    uint32_t slot_not_finite[SLOTS_KEPT]; /* values that are not in the sums */
};

_Static_assert(sizeof(struct look_sketch) + SLOTS_KEPT * sizeof(uint32_t) <= 8192,
               "8 KiB for a column and lane");

struct look_column {
    uint64_t nulls;
    uint32_t slot_nulls[SLOTS_KEPT];
    struct look_sketch *sketch; /* NULL: only nulls are counted */
};

struct look {
    const struct schema *schema;
    /* The lane's. */
    uint64_t next_ns, random;
    int64_t cost_ns; /* of a look, by the last ones; 0: there was none */
    int64_t rests;   /* so many times what a look costs is until the next */
    uint32_t rows_max;
    /* Guarded by the mutex. */
    pthread_mutex_t mutex;
    uint64_t rows;
    uint64_t ticks[SLOTS_KEPT]; /* which SPAN_S of the monotonic clock a slot is of */
    uint32_t slot_rows[SLOTS_KEPT];
    struct look_sketch *sketches; /* of the first columns */
    struct look_column columns[];
};

struct look_place {
    const struct plan_node *node;
    const struct schema *schema;
    uint32_t sketched; /* the first columns, which have sketches */
    struct look **instances;
    uint32_t count;
};

/* --- One value --- */

/* The finalizer of splitmix64. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t hash_text(struct str text)
{
    return XXH3_64bits_withSeed(text.data, MIN(text.length, (size_t)TEXT_HASHED), text.length);
}

/* All NaNs are one value, and so are 0 and -0. */
static uint64_t hash_double(double value)
{
    uint64_t bits = 0;
    if (isnan(value))
        value = (double)NAN;
    if (value != 0)
        memcpy(&bits, &value, sizeof(bits));
    return mix(bits + 1);
}

/* The value of an element, or of a column that is no list: its hash, and its bytes as run_column.frequent has them. */
static uint64_t value_of(const struct column *column, uint32_t row, struct str *bytes)
{
    switch (column->tag) {
    case TYPE_BOOL:
        *bytes = (struct str){(const char *)&column->bools[row], 1};
        return mix(column->bools[row] + 1U);
    case TYPE_INT:
    case TYPE_TIME:
        *bytes = (struct str){(const char *)&column->ints[row], sizeof(int64_t)};
        return mix((uint64_t)column->ints[row] + 1);
    case TYPE_FLOAT:
        *bytes = (struct str){(const char *)&column->floats[row], sizeof(double)};
        return hash_double(column->floats[row]);
    case TYPE_TEXT:
    case TYPE_BYTES: *bytes = column_text(column, row); return hash_text(*bytes);
    case TYPE_LIST:
    case TYPE_RECORD: break;
    }
    leat_assert(false);
    return 0;
}

/* What run_column.numbers are of: the value, or its length. NAN: a bool has none. */
static double number_of(const struct column *column, uint32_t row)
{
    switch (column->tag) {
    case TYPE_INT:
    case TYPE_TIME: return (double)column->ints[row];
    case TYPE_FLOAT: return column->floats[row];
    case TYPE_TEXT:
    case TYPE_BYTES: return column->texts[row].length;
    case TYPE_LIST: return column->lists[row].length;
    case TYPE_BOOL: return column->bools[row];
    case TYPE_RECORD: break;
    }
    return (double)NAN;
}

static void add_value(struct look_sketch *sketch, const struct column *column, uint32_t row, bool has_top)
{
    struct str bytes;
    uint64_t hash = value_of(column, row, &bytes);
    sketch_distinct_add(&sketch->distinct, hash);
    if (has_top)
        sketch_top_add(&sketch->top, hash, bytes);
}

static void add_elements(struct look_sketch *sketch, const struct column *column, uint32_t row)
{
    const struct list_ref *list = &column->lists[row];
    const struct column *elements = &column->children[0];
    for (uint32_t i = 0; i < MIN(list->length, (uint32_t)ELEMENTS_MAX); i++)
        if (column_is_valid(elements, list->offset + i))
            add_value(sketch, elements, list->offset + i, true);
}

/* --- One look --- */

static void add_column(struct look_column *to, const struct type *type, const struct column *column,
                       const uint16_t *rows, uint32_t count, uint32_t slot)
{
    struct look_sketch *sketch = to->sketch;
    leat_assert(column->tag == type->tag);
    bool is_number = column->tag == TYPE_INT || column->tag == TYPE_FLOAT || column->tag == TYPE_TIME;
    for (uint32_t i = 0; i < count; i++) {
        if (!column_is_valid(column, rows[i])) {
            to->nulls++;
            to->slot_nulls[slot]++;
            continue;
        }
        if (sketch == NULL)
            continue;
        double number = number_of(column, rows[i]);
        sketch_numbers_add(&sketch->numbers, number);
        sketch->sums[slot] += isfinite(number) ? number : 0;
        sketch->slot_not_finite[slot] += isfinite(number) ? 0 : 1;
        if (column->tag == TYPE_LIST && type->element->tag != TYPE_RECORD)
            add_elements(sketch, column, rows[i]);
        else if (column->tag != TYPE_LIST) /* of records only the number is known */
            add_value(sketch, column, rows[i], !is_number);
    }
}

/* The slot of this moment, emptied if it was of an earlier one. */
static uint32_t slot_of(struct look *look, uint64_t now_ns)
{
    uint64_t tick = now_ns / (SPAN_S * UINT64_C(1000000000)) + 1; /* a slot that is zeroed is of no tick */
    uint32_t slot = (uint32_t)(tick % SLOTS_KEPT);
    if (look->ticks[slot] == tick)
        return slot;
    look->ticks[slot] = tick;
    look->slot_rows[slot] = 0;
    for (uint32_t c = 0; c < look->schema->count; c++) {
        look->columns[c].slot_nulls[slot] = 0;
        if (look->columns[c].sketch == NULL)
            continue;
        look->columns[c].sketch->sums[slot] = 0;
        look->columns[c].sketch->slot_not_finite[slot] = 0;
    }
    return slot;
}

/* Chooses up to `most` of the selected rows: one of each of so many stretches. */
static uint32_t choose(struct look *look, const struct batch *batch, uint32_t most, uint16_t *rows)
{
    uint32_t count = MIN(batch->selected, most);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t first = i * batch->selected / count, end = (i + 1) * batch->selected / count;
        uint64_t chance = mix(look->random += UINT64_C(0x9e3779b97f4a7c15)) >> 32;
        rows[i] = (uint16_t)batch_row(batch, first + (uint32_t)(chance * (end - first) >> 32));
    }
    return count;
}

static void look_now(struct look *look, const struct batch *batch, uint64_t now_ns)
{
    uint16_t rows[ROWS_MAX];
    leat_assert(batch->schema->count == look->schema->count);
    uint32_t count = choose(look, batch, look->rows_max, rows), slot = slot_of(look, now_ns);
    look->rows += count;
    look->slot_rows[slot] += count;
    for (uint32_t c = 0; c < look->schema->count; c++)
        add_column(&look->columns[c], &look->schema->fields[c].type, &batch->columns[c], rows, count, slot);
}

bool look_is_due(const struct look *look, uint64_t now_ns)
{
    return now_ns >= look->next_ns;
}

void look_at(struct look *look, const struct batch *batch)
{
    if (batch->selected == 0 || pthread_mutex_trylock(&look->mutex) != 0)
        return;
    uint64_t begin = os_monotonic_ns();
    look_now(look, batch, begin);
    pthread_mutex_unlock(&look->mutex);
    uint64_t end = os_monotonic_ns();
    int64_t cost = MAX((int64_t)(end - begin), COST_LEAST_NS);
    look->cost_ns = look->cost_ns == 0 ? cost : look->cost_ns + (cost - look->cost_ns) / COSTS_KEPT;
    look->next_ns = end + (uint64_t)MIN(look->cost_ns * look->rests, REST_MAX_S * INT64_C(1000000000));
}

/* --- The looks of a run --- */

static struct look *look_new(const struct look_place *place, uint32_t seed)
{
    uint32_t columns = place->schema->count;
    struct look *look = mem_calloc(1, sizeof(*look) + columns * sizeof(look->columns[0]));
    look->schema = place->schema;
    look->random = mix(seed + 1);
    look->rows_max = MIN(MAX(VALUES_MAX / MAX(columns, 1U), (uint32_t)ROWS_LEAST), (uint32_t)ROWS_MAX);
    pthread_mutex_init(&look->mutex, NULL);
    look->sketches = mem_calloc(MAX(place->sketched, 1U), sizeof(*look->sketches));
    for (uint32_t c = 0; c < place->sketched; c++)
        look->columns[c].sketch = &look->sketches[c];
    return look;
}

static void look_free(struct look *look)
{
    pthread_mutex_destroy(&look->mutex);
    free(look->sketches);
    free(look);
}

static struct node_instance *instance_of(const struct run *run, const struct plan_node *node,
                                         uint32_t instance)
{
    struct stage_instance *stage = run->lanes->stages[run->lanes->stage_first[node->stage] + instance];
    for (uint32_t i = 0; i < stage->stage->nodes_count; i++)
        if (stage->nodes[i].node == node)
            return &stage->nodes[i];
    leat_assert(false);
    return NULL;
}

static const struct schema *schema_of(const struct plan_node *node)
{
    switch (node->tag) {
    case PLAN_SOURCE: return node->outputs[0];
    case PLAN_LEARNER:
    case PLAN_SINK: return node->bound[0].schema;
    case PLAN_OPERATOR: break;
    }
    return NULL;
}

static void add_place(struct run *run, const struct plan_node *node, uint32_t sketched)
{
    struct look_place *place = &run->lanes->looks[run->lanes->looks_count++];
    *place = (struct look_place){.node = node,
                                 .schema = schema_of(node),
                                 .sketched = sketched,
                                 .count = run->stage_instances[node->stage]};
    place->instances = arena_array(&run->arena, struct look *, place->count);
    for (uint32_t i = 0; i < place->count; i++)
        place->instances[i] = instance_of(run, node, i)->look = look_new(place, i);
}

/* What an instance costs is multiplied by how many there are on its lane. */
static void share_time(struct run *run)
{
    for (uint32_t lane = 0; lane < run->lanes_count; lane++) {
        uint32_t looks = 0;
        for (int pass = 0; pass < 2; pass++)
            for (uint32_t s = 0; s < run->lanes->stages_total; s++)
                for (uint32_t k = 0; k < run->lanes->stages[s]->stage->nodes_count; k++) {
                    struct look *look = run->lanes->stages[s]->nodes[k].look;
                    if (look == NULL || run->lanes->stages[s]->lane != lane)
                        continue;
                    looks += pass == 0;
                    look->rests = (int64_t)SHARE * looks;
                }
    }
}

void looks_init(struct run *run)
{
    uint32_t left = SKETCHED;
    if (!run->options.looks_at_columns || run->trace != NULL)
        return;
    run->lanes->looks = arena_array(&run->arena, struct look_place, run->plan->nodes_count);
    for (uint32_t i = 0; i < run->plan->nodes_count; i++) {
        const struct schema *schema = schema_of(&run->plan->nodes[i]);
        if (schema == NULL)
            continue;
        uint32_t sketched = MIN(schema->count, left);
        left -= sketched;
        add_place(run, &run->plan->nodes[i], sketched);
    }
    share_time(run);
}

void looks_free(struct run *run)
{
    for (uint32_t i = 0; i < run->lanes->looks_count; i++)
        for (uint32_t k = 0; k < run->lanes->looks[i].count; k++)
            look_free(run->lanes->looks[i].instances[k]);
    run->lanes->looks_count = 0;
}

/* --- What was seen --- */

uint32_t run_columns_count(const struct run *run)
{
    return run->lanes->looks_count;
}

void run_columns(const struct run *run, uint32_t index, struct run_columns *columns)
{
    const struct look_place *place = &run->lanes->looks[index];
    leat_assert(index < run->lanes->looks_count);
    *columns = (struct run_columns){.node = place->node, .schema = place->schema};
    for (uint32_t i = 0; i < place->count; i++) {
        pthread_mutex_lock(&place->instances[i]->mutex);
        columns->rows += place->instances[i]->rows;
        pthread_mutex_unlock(&place->instances[i]->mutex);
    }
}

static void add_spans(const struct look *look, const struct look_column *column, uint64_t now_tick,
                      struct run_column *out)
{
    for (uint32_t s = 0; s < SLOTS_KEPT; s++) {
        uint64_t age = now_tick - look->ticks[s]; /* a slot of a later tick than now has a huge age */
        if (look->ticks[s] == 0 || age >= SLOTS_KEPT)
            continue;
        struct run_column_span *span = age < RECENT ? &out->recent : &out->before;
        span->rows += look->slot_rows[s];
        span->nulls += column->slot_nulls[s];
        span->not_finite += column->sketch == NULL ? 0 : column->sketch->slot_not_finite[s];
        span->sum += column->sketch == NULL ? 0 : column->sketch->sums[s];
    }
}

/* Adds what one lane has seen, but for the frequent values: those are copied to *top. */
static void add_lane(struct look *look, uint32_t column, uint64_t now_tick, struct sketch_distinct *distinct,
                     struct look_sketch *copy, struct sketch_top *top, struct run_column *out)
{
    const struct look_column *of = &look->columns[column];
    pthread_mutex_lock(&look->mutex);
    out->rows += look->rows;
    out->nulls += of->nulls;
    add_spans(look, of, now_tick, out);
    if (of->sketch != NULL)
        *copy = *of->sketch;
    pthread_mutex_unlock(&look->mutex);
    if (of->sketch == NULL)
        return;
    sketch_distinct_merge(distinct, &copy->distinct);
    sketch_numbers_merge(&out->numbers, &copy->numbers);
    *top = copy->top;
    out->values += top->total;
}

static void put_frequent(const struct sketch_top *tops, uint32_t count, struct run_column *out)
{
    const struct sketch_top **each = mem_calloc(count, sizeof(*each));
    struct sketch_frequent found[SKETCH_ANSWER_TOPS];
    uint32_t followed;
    bool is_all =
        out->values > 0; /* the sketches follow all values there are: their number is known exactly */
    for (uint32_t i = 0; i < count; i++) {
        each[i] = &tops[i];
        is_all &= tops[i].count < SKETCH_TOPS;
    }
    out->frequent_count = sketch_top_frequent(each, count, found, &followed);
    out->distinct = is_all ? followed : out->distinct;
    for (uint32_t i = 0; i < out->frequent_count; i++) {
        uint8_t length = found[i].top->lengths[found[i].index];
        out->frequent[i].at_least = found[i].at_least;
        out->frequent[i].is_cut = length == SKETCH_TEXT_CUT;
        out->frequent[i].length = MIN(length, SKETCH_TEXT_BYTES);
        memcpy(out->frequent[i].bytes, found[i].top->texts[found[i].index], SKETCH_TEXT_BYTES);
    }
    free(each);
}

void run_column_read(const struct run *run, uint32_t index, uint32_t column, struct run_column *out)
{
    const struct look_place *place = &run->lanes->looks[index];
    leat_assert(index < run->lanes->looks_count && column < place->schema->count);
    uint64_t now_tick = os_monotonic_ns() / (SPAN_S * UINT64_C(1000000000)) + 1;
    struct sketch_distinct *distinct = mem_calloc(1, sizeof(*distinct));
    struct look_sketch *copy = mem_alloc(sizeof(*copy));
    struct sketch_top *tops = mem_calloc(place->count, sizeof(*tops));
    *out =
        (struct run_column){.field = &place->schema->fields[column], .is_sketched = column < place->sketched};
    for (uint32_t i = 0; i < place->count; i++)
        add_lane(place->instances[i], column, now_tick, distinct, copy, &tops[i], out);
    if (out->is_sketched) {
        out->distinct = sketch_distinct_estimate(distinct);
        put_frequent(tops, place->count, out);
    }
    free(distinct);
    free(copy);
    free(tops);
}
