/*
 * One tower of a two-tower model: rows (events, or items) have some ids in each field; the mean of their rows is the
 * field's vector; the vectors of all fields go through the tower's layers, or are added up where there are none; what
 * comes out is a vector, whose length is made 1 with `normalize`. A part of it knows nothing of the other tower.
 *
 * tower_bags, then tower_look (to predict) or tower_resolve (to learn), then tower_encode for some rows at a time. To
 * learn: tower_back for the part that tower_encode has seen last; when all parts from row 0 on are through,
 * tower_update.
 *
 * The thread that owns the model makes all calls.
 */
#ifndef LEAT_LEARNERS_TOWERS_TOWER_H
#define LEAT_LEARNERS_TOWERS_TOWER_H

#include "learners/items/catalogue.h"
#include "learners/networks/networks.h"
#include "learners/tables/table.h"
#include "learners/train/net.h"

enum {
    TOWER_FIELDS_MAX = 17, /* those of a query, or an item's own and its features */
    TOWER_PASS = 1024,     /* rows that go through the layers together */
    TOWER_ROWS_MAX = 1 << 24,
};

struct tower_options {
    const struct kernels *kernels;
    uint32_t fields, dim; /* dim: floats of a row, a multiple of 4 */
    bool has_layers;      /* false: width is dim, and network is not read */
    struct tower_network network;
    bool normalize;
    struct optimizer_options rows, dense;
    float init, clip_norm;
    struct catalogue
        *items; /* the rows of field 0 are those of items, whose ids are their numbers plus 1; or NULL */
    int64_t expire_after_us; /* of the tables' rows; 0: never, and each table has at most TOWER_ROWS_MAX */
    bool is_bounded;         /* others remove the tables' rows: there is no limit */
    uint32_t shards;
    uint64_t seed;
};

/* Where the ids of rows come from. ids: those of a field, *count of them, none 0; valid until the next call. seen: the
 * time of the row's ids, in seconds. */
struct tower_source {
    const void *of;
    const uint64_t *(*ids)(const void *of, uint32_t row, uint32_t field, uint32_t *count);
    uint32_t (*seen)(const void *of, uint32_t row);
};

struct tower {
    struct tower_options options;
    uint32_t width, stride;                /* of the vectors; of the net's input */
    uint32_t pass;                         /* most rows of tower_encode: TOWER_PASS, or less in tests */
    struct table tables[TOWER_FIELDS_MAX]; /* of each field; not that of items */
    struct net net;
    struct train_device device;
    struct train_memory memory;
    float norms[TOWER_PASS]; /* 1 / length of the vectors of the last pass */
    /* of the last pass: what goes in or comes out is not finite, because a row of an id is too large */
    uint8_t is_rejected[TOWER_PASS];
    bool has_rejected;
    /* The rows at work; places are field after field, and row after row within a field. */
    uint32_t n, places;
    uint32_t *offsets;                            /* [fields * n + 1] */
    uint64_t *ids;                                /* [places] */
    uint32_t *bag, *event, *indices, *order;      /* [places] */
    float *scales;                                /* [places] */
    uint32_t *starts, *seen, *counts, *of_tables; /* [places + 1] by distinct id, but the first */
    uint64_t *unique;
    struct table_row **found;
    uint8_t *known;
    void **rows;    /* of places (tower_look), or of distinct ids (tower_resolve) */
    uint32_t *at;   /* [n] seconds */
    uint32_t count; /* distinct ids */
    bool is_resolved;
    size_t places_room, offsets_room, gradients_room;
    float *gradients; /* [n][stride] by the input */
    void *scratch;
    size_t scratch_bytes;
    uint64_t rows_refused; /* optimizer steps that were not finite */
};

/* Memory of a tower's layers, computed before it is made. */
struct tower_plan {
    size_t activations, parameters, scratch;
};
void tower_plan(const struct tower_options *options, struct tower_plan *plan);

void tower_init(struct tower *t, const struct tower_options *options);
void tower_free(struct tower *t); /* takes zeros, too */

static inline uint32_t tower_first_table(const struct tower *t)
{
    return t->options.items != NULL;
}

/* Takes the ids of n rows. */
void tower_bags(struct tower *t, uint32_t n, const struct tower_source *source);
/* Finds the rows of all ids; those that have none read as zeros. Changes nothing. */
void tower_look(struct tower *t);
/* All ids occur in a step (table_resolve_batch); items do not, they are there. */
void tower_resolve(struct tower *t, uint32_t step);
/* The vectors of rows from .. from + n - 1, at most t->pass: out[n][width]. */
void tower_encode(struct tower *t, uint32_t from, uint32_t n, float *out);
/* The way back, of the rows that tower_encode saw last. vectors: what tower_encode wrote; gradients: [n][width], the
 * derivatives by them. A row whose vector is not finite has no gradient, and teaches nothing. */
void tower_back(struct tower *t, uint32_t from, uint32_t n, const float *vectors, const float *gradients);
/* The vector gets length 1; one of zeros stays as it is. Returns the factor: 0 for one of zeros, or not finite. */
float tower_normalize(float *x, uint32_t n);
/* A step of the rows that some row with taught[row] has, and of the layers, whose rates and corrections are given. */
void tower_update(struct tower *t, const uint8_t *taught, const struct optimizer_options *rows,
                  const struct optimizer_options *dense);

#endif
