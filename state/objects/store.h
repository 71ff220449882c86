/* Below objects.h: what each kind of store implements. objects.c has checked names and options before it calls one. */
#ifndef LEAT_STATE_OBJECTS_STORE_H
#define LEAT_STATE_OBJECTS_STORE_H

#include "state/objects/objects.h"

#include <pthread.h>
#include <stdatomic.h>

struct objects_kind {
    const char *scheme; /* the URL begins with it */
    bool (*open)(struct objects *objects, struct diag_list *diags);
    void (*close)(struct objects *objects); /* also after a failed open */
    bool (*check)(struct objects *objects, struct diag_list *diags);
    bool (*put)(struct objects *objects, struct str name, const void *data, size_t bytes,
                struct diag_list *diags);
    enum objects_new (*put_new)(struct objects *objects, struct str name, const void *data, size_t bytes,
                                struct diag_list *diags);
    /* fd: of the file, whose name is `path`. */
    bool (*put_file)(struct objects *objects, struct str name, int fd, uint64_t bytes, const char *path,
                     struct diag_list *diags);
    enum objects_result (*get)(struct objects *objects, struct str name, size_t bytes_max,
                               struct byte_buffer *out, struct diag_list *diags);
    enum objects_result (*get_range)(struct objects *objects, struct str name, uint64_t offset, size_t bytes,
                                     struct byte_buffer *out, struct diag_list *diags);
    enum objects_result (*head)(struct objects *objects, struct str name, uint64_t *bytes,
                                struct diag_list *diags);
    bool (*list)(struct objects *objects, struct str prefix, struct arena *arena,
                 struct objects_entry **entries, uint32_t *count, struct diag_list *diags);
    bool (*remove)(struct objects *objects, struct str name, struct diag_list *diags);
    bool (*abandon)(struct objects *objects, int64_t age_us, uint32_t *count, struct diag_list *diags);
};

extern const struct objects_kind objects_file, objects_s3;

struct objects {
    const struct objects_kind *kind;
    struct objects_options options; /* without zeros; url: `url` below */
    char *url;
    void *store; /* the kind's own */
    atomic_bool is_cancelled;
    pthread_mutex_t mutex; /* with `cancelled`: ends a pause */
    pthread_cond_t cancelled;
    _Atomic uint64_t bytes_up, bytes_down, requests, retries;
};

/* Sleeps for `us`; false: cancelled, at once or meanwhile. */
bool objects_pause(struct objects *objects, int64_t us);
/* E0710, of a call that was cancelled. Returns false. */
bool objects_say_cancelled(const struct objects *objects, struct diag_list *diags);

/* Entries that a list collects. */
struct objects_entries {
    struct objects_entry *items; /* malloc'd; names lie in an arena */
    uint32_t count, capacity;
};
/* False: there are OBJECTS_LIST_MAX already. */
bool objects_entries_add(struct objects_entries *entries, struct str name, uint64_t bytes);

#endif
