/* Writing a recording. Private to connectors/kafka. One thread at a time. */
#ifndef LEAT_CONNECTORS_KAFKA_RECORDING_WRITE_H
#define LEAT_CONNECTORS_KAFKA_RECORDING_WRITE_H

#include "connectors/kafka/recording.h"

/* The partition, added where it is new (then first is -1); valid until the next call. */
struct recording_partition *recording_add(struct recording *recording, const char *topic, int32_t id,
                                          struct arena *arena);
void recording_add_span(struct recording_partition *partition, const struct recording_span *span,
                        struct arena *arena);
/* Whether a file or folder of that name in a recording's directory is an order log that a live run writes
 * there
 * (`leat run --record-order DIR/order/`). */
bool recording_is_order_log(const char *name);
/* Replaces the manifest, durably. order_log: its path in the directory; NULL: the one that is there by its
 * name, if there is. 0 or an errno. */
LEAT_CHECKED int recording_save(const struct recording *recording, const char *directory,
                                const char *order_log);

/* What packs the spans of all partitions; zeroed before. */
struct recording_packer {
    void *context; /* ZSTD_CCtx */
    struct byte_buffer bytes;
};
void recording_packer_free(struct recording_packer *packer);

/* The span of one partition that is being written. */
struct recording_writer {
    /* Given by the owner. */
    const char *directory, *topic;
    int32_t id;
    enum recording_format format;
    struct recording_packer *packer;

    bool is_open;
    int fd;
    char *path, *part; /* the final name, and the one until then */
    struct recording_span span;
    struct byte_buffer raw;
    int64_t raw_bytes; /* of the span, before they are packed */
    int64_t begin_us;  /* os_monotonic_us() of its first record */
};

/* Appends a record; the first one opens a span that begins at `first`. 0 or an errno: the span is of no use
 * any more, and is to be abandoned. */
LEAT_CHECKED int recording_writer_put(struct recording_writer *writer, int64_t first,
                                      const struct recorded *record);
/* The span is complete up to `next`: durable, and under its final name. *span: what the manifest is to say of
 * it, in the arena. */
LEAT_CHECKED int recording_writer_finish(struct recording_writer *writer, int64_t next,
                                         struct recording_span *span, struct arena *arena);
/* Removes a span that was begun. Tolerates a zeroed writer. */
void recording_writer_close(struct recording_writer *writer);

/* Makes the directory, takes its lock (closed with *lock_fd) and reads what is recorded there. False after a
 * diagnostic: another process records into it (E0605), or it has something else (E0606). */
LEAT_CHECKED bool recording_begin(const char *directory, struct recording *recording, int *lock_fd,
                                  struct arena *arena, struct diag_list *diags);
/* Adds a diagnostic about the directory; false. */
bool recording_refuse(const char *directory, enum diag_code code, const char *what, const char *hint,
                      struct diag_list *diags);

/* Removes what an earlier process left in the topic's folder: files of spans that the manifest does not name.
 */
void recording_sweep(const struct recording *recording, const char *directory, const char *topic);

#endif
