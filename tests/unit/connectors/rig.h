/* Sources and sinks driven by hand, with checkpoints in memory. */
#ifndef LEAT_TESTS_UNIT_CONNECTORS_RIG_H
#define LEAT_TESTS_UNIT_CONNECTORS_RIG_H

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

/* Binds and opens a source. options: as in a job: "{ path: \"x\" }"; schema: for harness_schema, or NULL.
 * Returns false after diagnostics. */
bool rig_source_open(struct rig_source *rig, const struct source_kind *kind, const char *options,
                     const char *schema);
/* The two halves of rig_source_open: bind, which is all that `leat check` does, and open. */
bool rig_source_bind(struct rig_source *rig, const struct source_kind *kind, const char *options,
                     const char *schema);
bool rig_source_begin(struct rig_source *rig);
void rig_source_close(struct rig_source *rig);

/* The batches of a partition from its current position on, until read() returns another
 * status than READ_BATCH. */
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
    enum read_status status; /* of the last read(): never READ_BATCH */
};
struct rig_reading rig_read(struct rig_source *rig, uint32_t partition);
void rig_reading_free(struct rig_reading *reading);
/* The texts of all batches, joined; malloc'd. */
char *rig_text(const struct rig_reading *reading);
/* The code of the only error ("E0603"), or "" where there is none; aborts if there are several. */
const char *rig_error(const struct diag_list *diags);
/* The message, hint, cause, path and offset of the first diagnostic in one text, in the rig's arena. */
const char *rig_message(struct rig_source *rig);

/* --- sinks --- */

struct rig_record {
    char *data;
    size_t bytes;
};
struct rig_checkpoint {
    uint64_t epoch;
    struct rig_checkpoint *previous; /* what a delta builds on, and must live as long; NULL: a base */
    struct rig_record records[1024];
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

/* The job's claims, which rig_sink_open passes to each sink; NULL: no job is known. */
extern struct claims *rig_claims;

/* What rig_sink_open passes to each sink of the process that it belongs to; NULL: nothing. */
struct rig_life {
    uint32_t life;
    bool replaces_parts;
    int (*check)(void *engine);
    void *engine;
};
extern const struct rig_life *rig_life;

/* Opens a sink. has_checkpoints: whether `published` will be called; from: the checkpoint to restore (a delta
 * is read after those that it builds on), or NULL for a fresh start. Returns false after diagnostics. */
bool rig_sink_open(struct rig_sink *rig, const struct sink_kind *kind, const char *options,
                   const struct schema *input, bool has_checkpoints, struct rig_checkpoint *from);
/* Takes a base checkpoint, runs its deferred jobs and publishes it; false: the sink refused. */
bool rig_sink_snapshot(struct rig_sink *rig, uint64_t epoch, struct rig_checkpoint *checkpoint);
/* The same on top of `previous` (NULL: a base); is_published: false: the checkpoint is abandoned. */
bool rig_sink_snapshot_on(struct rig_sink *rig, uint64_t epoch, struct rig_checkpoint *previous,
                          bool is_published, struct rig_checkpoint *checkpoint);
void rig_sink_close(struct rig_sink *rig);

/* --- files --- */

void rig_write_file(const char *path, const void *data, size_t bytes);
/* The file's bytes with a terminator that *bytes does not count, malloc'd; NULL: it cannot be read. */
char *rig_read_file(const char *path, size_t *bytes);
/* The bytes compressed as one frame, malloc'd. kind: ".gz", ".zst" or ".lz4"; *packed: the
 * compressed length. */
char *rig_compress(const char *kind, const void *data, size_t bytes, size_t *packed);
/* The names in a directory, sorted, separated by spaces, without those that begin with a dot; malloc'd. */
char *rig_list(const char *directory);

#endif
