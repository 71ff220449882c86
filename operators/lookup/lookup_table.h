/* A table from a file, for `lookup`: rows by key, read once, then read-only.
 *
 * All rows lie in one array: the key, 8 bytes for each column (of a text or list: its place in the column's
 * heap), and the null bits. The index is a hash table of row numbers with linear probing. Results depend on
 * the file's content alone. One thread makes the table; then any lane may read it. */
#ifndef LEAT_OPERATORS_LOOKUP_LOOKUP_TABLE_H
#define LEAT_OPERATORS_LOOKUP_LOOKUP_TABLE_H

#include "core/connector.h"
#include "core/key.h"

enum lookup_duplicates { LOOKUP_REFUSE, LOOKUP_FIRST, LOOKUP_LAST };

struct lookup_source {
    const struct source_kind *kind; /* `file` */
    void *config;                   /* its options, bound; the source is not open */
    const struct schema *schema;    /* the key columns, then the others */
    uint32_t key_count;
    const char *path; /* as the job says it, for messages */
    enum lookup_duplicates duplicates;
    size_t budget_bytes;
    struct span span;
    /* The table is one of several versions (lookup_versions.h). The table may be freed before the batches
     * that were filled from it, so texts are copied into the batches. It is read from a copy of the file;
     * messages do not name the copy. */
    bool is_version;
};

struct lookup_table;
/* Reads the file. config: the source's, or a copy with another path. source: must outlive the table. NULL and
 * diagnostics (E06.., E0505): the file is missing, a record is bad, a key repeats, or budget_bytes is
 * exceeded. */
struct lookup_table *lookup_table_load(const struct lookup_source *source, void *config,
                                       struct batch_pool *pool, struct diag_list *diags);
void lookup_table_free(struct lookup_table *table); /* NULL is allowed */

/* Digest of the file's content, 32 hex digits: tables with equal digests are equal. */
const char *lookup_table_digest(const struct lookup_table *table);

struct lookup_row;
/* Sets found[i] to the row of keys[i], or NULL. hashes: key_hash of each key. */
void lookup_table_find(const struct lookup_table *table, const struct key *keys, const uint64_t *hashes,
                       uint32_t count, const struct lookup_row **found);
/* Initialises a column of the batch and sets its selected rows to column i behind the key; null where found
 * is NULL. Texts stay in the table, which must outlive the batch, unless the source says is_version. */
void lookup_table_column(const struct lookup_table *table, uint32_t i, const struct lookup_row *const *found,
                         struct batch *batch, struct column *column);

struct lookup_figures {
    uint64_t rows, null_keys, replaced;
    size_t bytes;
};
void lookup_table_figures(const struct lookup_table *table, struct lookup_figures *figures);

#endif
