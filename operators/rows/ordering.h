/* An order of rows, as `order desc(price), ts` says it: which of two rows comes first.
 *
 * A row's place in the order is given by its order key. The key has a word of 8 bytes for each expression,
 * a bit for each expression that is null, and the whole texts. Words are compared as unsigned numbers, the
 * smaller one first; a word holds the whole int, time, float or bool, of a text the first 8 bytes, and is
 * inverted for desc. The whole texts are compared only if the words are equal. So to reject a row costs a
 * compare of two words. Null and NaN come last, with asc and desc alike; -0.0 equals 0.0; texts compare by
 * bytes.
 *
 * Rows with equal order keys: an operator gets the rows of a group in the order of records (row_order), which
 * does not depend on the number of lanes. "The earlier record first" therefore needs no ordinal: a new row
 * goes behind the kept rows that it equals (ordering_compare gives 0), or in front of them if the later row
 * wins.
 *
 * How an operator uses an order; the example is `join ... take best order desc(price), ts`:
 *     bind:     ordering_bind(bind, 1, &join->order, "order", &join->ordering), where join->order is an
 *               OPTION_EXPRESSIONS; ordering_lineage if the order decides which rows are emitted
 *     a batch:  rows = ordering_evaluate(&ordering, batch, scratch, &errors), then for the i-th selected row
 *               key = ordering_key(&rows, i); rows in `errors` have no key and go to dead letters
 *     to keep:  ordering_key_bytes(&ordering, &key) bytes, aligned to 8, written by ordering_put and read
 *               back by ordering_get, which does not copy
 *     better:   ordering_compare(&ordering, &a, &b) < 0: a comes before b */
#ifndef LEAT_OPERATORS_ROWS_ORDERING_H
#define LEAT_OPERATORS_ROWS_ORDERING_H

#include "core/operator.h"
#include "operators/expr/expr.h"

enum { ORDERING_MAX = 16 };

struct ordering_item {
    struct expr *expr; /* NULL: the row's event time */
    struct type type;
    bool is_descending;
};

/* Made by bind, then read by all lanes. */
struct ordering {
    struct ordering_item items[ORDERING_MAX];
    uint32_t count;
    bool has_texts;
};

struct order_key {
    const uint64_t *words; /* ordering.count of them */
    uint64_t nulls;        /* bit i: the i-th expression is null */
    const char *texts;     /* for each text or bytes: length (4 bytes) and bytes; NULL: no texts */
    uint32_t texts_bytes;  /* length of `texts` */
};

/* Compiles the expressions, each of which may stand in desc() or asc(), against an input. option: the
 * option's name, for messages. Returns false after diagnostics. */
bool ordering_bind(struct operator_bind *bind, uint32_t input, const struct expressions *expressions,
                   const char *option, struct ordering *ordering);
/* The order by event time, the latest first. */
void ordering_of_latest(struct ordering *ordering);
/* Adds the lineage of the order's expressions to `lineage`, that of the rows chosen by the order. */
void ordering_lineage(const struct ordering *ordering, struct lineage *lineage);
/* Appends the expressions as text, "desc(price), ts", for shapes and fingerprints. */
void ordering_text(const struct expressions *expressions, struct byte_buffer *out);

/* Keys of the selected rows of a batch; the arrays lie in the arena of ordering_evaluate. */
struct ordered_rows {
    uint32_t count; /* words of each row */
    const uint64_t *words;
    const uint64_t *nulls;
    const uint32_t *text_at; /* offsets into texts, selected + 1 of them; NULL: no texts */
    const char *texts;
};

/* Computes the keys of all selected rows. Rows for which an expression fails are added to `errors`. */
struct ordered_rows ordering_evaluate(const struct ordering *ordering, const struct batch *batch,
                                      struct arena *scratch, struct expr_errors *errors);

static inline struct order_key ordering_key(const struct ordered_rows *rows, uint32_t i)
{
    struct order_key key = {.words = rows->words + (size_t)i * rows->count, .nulls = rows->nulls[i]};
    if (rows->text_at != NULL) {
        key.texts = rows->texts + rows->text_at[i];
        key.texts_bytes = rows->text_at[i + 1] - rows->text_at[i];
    }
    return key;
}

/* Called by ordering_compare alone: compares the keys in full. */
int ordering_compare_rest(const struct ordering *ordering, const struct order_key *a,
                          const struct order_key *b);

/* Returns < 0 if a comes first, > 0 if b does, 0 if they are equal. */
static inline int ordering_compare(const struct ordering *ordering, const struct order_key *a,
                                   const struct order_key *b)
{
    if (a->words[0] != b->words[0])
        return a->words[0] < b->words[0] ? -1 : 1;
    if (ordering->count == 1 && !ordering->has_texts && (a->nulls | b->nulls) == 0)
        return 0;
    return ordering_compare_rest(ordering, a, b);
}

/* A key as bytes. ordering_put writes ordering_key_bytes bytes to `out`. */
size_t ordering_key_bytes(const struct ordering *ordering, const struct order_key *key);
void ordering_put(const struct ordering *ordering, const struct order_key *key, char *out);
/* Sets `key` to point into `data`, which is aligned to 8 and outlives the key. Returns false if the bytes are
 * no key of this order. */
bool ordering_get(const struct ordering *ordering, struct str data, struct order_key *key);

#endif
