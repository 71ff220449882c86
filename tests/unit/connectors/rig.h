/* Sources and sinks driven by hand, with checkpoints in memory. */
#ifndef LEAT_TESTS_CONNECTORS_RIG_H
#define LEAT_TESTS_CONNECTORS_RIG_H

#include "core/connector.h"

/* --- sources --- */

struct rig_source {
    struct arena arena;
    struct diag_list diags;
    const struct source_kind *kind;
    struct source source;
    struct batch_pool *pool;
    void *decoder;
    bool is_bound, is_open;
};

/* options: "{ path: \"x\" }"; schema: for harness_schema, or NULL. Binds and opens; false after diagnostics.
 */
bool rig_source_open(struct rig_source *rig, const struct source_kind *kind, const char *options,
                     const char *schema);
/* The two halves of it: what `leat check` does, and the rest. */
bool rig_source_bind(struct rig_source *rig, const struct source_kind *kind, const char *options,
                     const char *schema);
bool rig_source_begin(struct rig_source *rig);
void rig_source_close(struct rig_source *rig);

/* The raw batches of a partition, from where it stands. */
struct rig_batch {
    struct source_position position, next;
    uint32_t count;
    int64_t first_line, first_offset;
    char *text; /* as harness_render gives it */
    char *path;
};
struct rig_reading {
    struct rig_batch *batches;
    size_t count;
    enum read_status status; /* of the last read */
};
struct rig_reading rig_read(struct rig_source *rig, uint32_t partition);
void rig_reading_free(struct rig_reading *reading);
/* All batches' texts together, malloc'd. */
char *rig_text(const struct rig_reading *reading);
/* The only error's code ("E0603"), or "" where there is none; fails on several. */
const char *rig_error(const struct diag_list *diags);
/* The message, hint and cause of the first diagnostic in one text. */
const char *rig_message(struct rig_source *rig);

/* --- sinks --- */

struct rig_record {
    char *data;
    size_t bytes;
};
struct rig_checkpoint {
    uint64_t epoch;
    struct rig_checkpoint *previous; /* of a delta; NULL: a base. It must live as long */
    struct rig_record records[256];
    size_t count, next;
    bool is_corrupt;
};
void rig_checkpoint_free(struct rig_checkpoint *checkpoint);

struct rig_sink {
    struct arena arena;
    struct diag_list diags;
    const struct sink_kind *kind;
    struct sink_context context;
};

/* Of the job around the sinks that are opened; NULL: none. */
extern struct claims *rig_claims;

/* from: NULL for a fresh start; a delta is read behind those before it. */
bool rig_sink_open(struct rig_sink *rig, const struct sink_kind *kind, const char *options,
                   const struct schema *input, bool has_checkpoints, struct rig_checkpoint *from);
/* Snapshot, with what was deferred; false where it was refused. */
bool rig_sink_snapshot(struct rig_sink *rig, uint64_t epoch, struct rig_checkpoint *checkpoint);
/* The same as a delta (previous NULL: as a base), which is published or abandoned. */
bool rig_sink_snapshot_on(struct rig_sink *rig, uint64_t epoch, struct rig_checkpoint *previous,
                          bool is_published, struct rig_checkpoint *checkpoint);
void rig_sink_close(struct rig_sink *rig);

/* --- files --- */

void rig_write_file(const char *path, const void *data, size_t bytes);
/* malloc'd, terminated; NULL: not there. */
char *rig_read_file(const char *path, size_t *bytes);
/* The bytes packed whole as .gz, .zst or .lz4 (by the suffix of `kind`), malloc'd. */
char *rig_compress(const char *kind, const void *data, size_t bytes, size_t *packed);
/* Names in a directory in order, separated by a space, malloc'd. */
char *rig_list(const char *directory);

#endif
