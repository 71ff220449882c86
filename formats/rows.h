/* Rows under construction, for all decoders but raw and batches. A decoder owns one `struct rows`; for each
 * raw batch it calls rows_begin, writes values into the columns row by row, reports bad records with
 * rows_bad, and ends with rows_end. The text of all columns goes into one heap in the batch's arena. Elements
 * of lists are collected in the decoder's memory and copied into the batch at the end, when their number is
 * known. One thread at a time. */
#ifndef LEAT_FORMATS_ROWS_H
#define LEAT_FORMATS_ROWS_H

#include "core/connector.h"

/* The most values in the lists of one batch; a record that exceeds it is bad. `[{},{},...]` makes many values
 * from few bytes. */
enum { ROWS_LIST_VALUES_MAX = 16 << 20 };

struct row_list;

/* Where the values of one field are written. */
struct row_column {
    enum type_tag tag;
    enum time_unit unit;
    bool is_required;
    bool has_null; /* of elements: some bit of `valid` is 0 */
    struct str name;
    union {
        uint8_t *bools;
        int64_t *ints;
        double *floats;
        struct text_ref *texts;
        struct list_ref *lists;
        void *data;
    };
    uint64_t *valid;       /* of a batch's rows: NULL until the first null; of elements: always there */
    struct row_list *list; /* TYPE_LIST */
    uint64_t seen;         /* number, by rows.objects, of the last object that had this field */
};

/* The fields of a record, with a hash table of the names. */
struct row_fields {
    struct row_column *columns;
    uint32_t count;
    uint32_t table_mask;
    uint16_t *table; /* index of the column + 1, 0: free */
};

/* The elements of all lists of one column. */
struct row_list {
    struct row_fields fields; /* of the elements; for a list of values, one field without a name */
    bool is_record;
    uint32_t rows, capacity;
    uint32_t mark; /* `rows` when the record in progress began */
};

struct rows {
    struct arena arena;
    struct row_fields fields;
    struct row_list **lists; /* all lists, at any depth */
    uint32_t lists_count;
    uint64_t objects; /* number of objects read so far, for row_column.seen */
    uint64_t list_values;
    struct raw_batch *raw;
    struct decode_output *output;
    char *heap_begin, *heap; /* where the next text goes */
    char *heap_mark;         /* heap when the record in progress began */
    char *heap_end;          /* for assertions; 64 bytes lie behind it */
};

struct rows *rows_new(const struct schema *schema);
void rows_free(struct rows *rows);

/* Starts a batch. heap_bytes: an upper bound of all text that the batch will hold. */
void rows_begin(struct rows *rows, struct raw_batch *raw, struct decode_output *output, size_t heap_bytes);
void rows_end(struct rows *rows);

/* Called before the first value of each record. */
static inline void rows_mark(struct rows *rows)
{
    rows->heap_mark = rows->heap;
    for (uint32_t i = 0; i < rows->lists_count; i++)
        rows->lists[i]->mark = rows->lists[i]->rows;
}

/* Reports the record of `row` as bad: all its columns become null, its list elements are removed. at: offset
 * in the record, in bytes, where it goes wrong; reason: static or in the batch's arena. */
void rows_bad(struct rows *rows, uint32_t row, uint32_t at, const char *reason);

/* Sets a null in a column of the batch, or in a column of the elements of `list` (list != NULL). */
void rows_null(struct rows *rows, struct row_column *column, uint32_t row, const struct row_list *list);

/* Adds an element to a list, with uninitialized columns. Returns the element's row; UINT32_MAX: the batch
 * would exceed ROWS_LIST_VALUES_MAX. */
uint32_t rows_element(struct rows *rows, struct row_list *list);

/* The column of that name, or NULL. */
struct row_column *rows_find(const struct row_fields *fields, const char *name, size_t length);

/* Makes the `length` bytes that the caller wrote at rows->heap the value of the row. */
static inline void rows_text(struct rows *rows, struct row_column *column, uint32_t row, size_t length)
{
    column->texts[row] = (struct text_ref){(uint32_t)(rows->heap - rows->heap_begin), (uint32_t)length};
    rows->heap += length;
}

/* Sets null in the fields that the object numbered `object` did not have. Returns the first required field
 * that is missing, or NULL. */
const struct row_column *rows_missing(struct rows *rows, struct row_fields *fields, uint64_t object,
                                      uint32_t row, const struct row_list *list);

#endif
