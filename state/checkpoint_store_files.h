/* Between the files of checkpoint_store.h's code. */
#ifndef LEAT_STATE_CHECKPOINT_STORE_FILES_H
#define LEAT_STATE_CHECKPOINT_STORE_FILES_H

#include "state/checkpoint_files.h"
#include "state/checkpoint_store.h"

enum { STORE_TOKEN_TEXT = 9, STORE_CONTENT_TEXT = 64 };

/* Names, sorted, each once; malloc'd. */
struct name_set {
    char **names;
    uint32_t count, capacity;
};
bool name_set_has(const struct name_set *set, struct str name);
void name_set_add(struct name_set *set, struct str name); /* does nothing where it is there */
void name_set_remove(struct name_set *set, struct str name);
void name_set_free(struct name_set *set);

struct checkpoint_store {
    struct objects *objects;
    char token[STORE_TOKEN_TEXT];
    struct name_set
        present; /* objects that are in the store for certain: this process put them, or saw them in a list */
    bool has_listed;             /* `present` has the contents of earlier processes */
    struct checkpoint_id stored; /* of the last head that this process put; generation 0: none */
    struct name_set unnamed;     /* objects that no kept head named at the last pruning */
    int64_t pruned_us;           /* when that was; INT64_MIN: never */
    /* checkpoint_store_known.c: the newest head that earlier processes put, and of which checkpoints' folders the objects that it
     * names have the same bytes as this directory. */
    bool is_known;
    struct checkpoint_head known; /* points into known_text and the arena */
    struct name_set known_folders;
    struct byte_buffer known_text;
    struct arena arena;
};

/* Finds out, once, which of the pack's files the store has under other processes' names; such objects count as present. */
void store_know(struct checkpoint_store *store, const struct checkpoint_pack *pack);
/* The object that has the file, in the arena; NULL: none that is known. */
const char *store_known_object(struct checkpoint_store *store, const char *name, struct arena *arena);
/* Whether the known head says the same. */
bool store_knows(const struct checkpoint_store *store, const struct checkpoint_head *head);

/* The name of the object for some content: FOLDER/DIGEST-BYTES. */
void store_content_name(const char *folder, const uint8_t digest[DIGEST_BYTES], uint64_t bytes,
                        char name[STORE_CONTENT_TEXT]);
/* The digest of a whole file by its descriptor. 0 or an errno; ENODATA: it has fewer than `bytes` bytes. */
int store_digest_fd(int fd, uint64_t bytes, uint8_t digest[DIGEST_BYTES]);

/* Whether this process may still change the store. False after E0709. */
LEAT_CHECKED bool store_check_holder(const struct checkpoint_dir *holder, struct diag_list *diags);

/* A head in the store. */
struct store_head {
    struct checkpoint_id id;
    struct str name;
};
/* Lists the heads, newest first, in the arena. False after E0710 or E0711. */
LEAT_CHECKED bool store_heads(struct checkpoint_store *store, struct arena *arena, struct store_head **heads,
                              uint32_t *count, struct diag_list *diags);
/* Gets and decodes a head. `text` is emptied, and must live as long as the head. MISSING: it was deleted meanwhile. FAILED after
 * E0710 or E0711. */
enum objects_result store_head_get(struct checkpoint_store *store, struct str name, struct arena *arena,
                                   struct byte_buffer *text, struct checkpoint_head *head,
                                   struct diag_list *diags);

#endif
