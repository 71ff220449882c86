/* Between the files of checkpoint_store.h's code. */
#ifndef LEAT_STATE_CHECKPOINT_STORE_FILES_H
#define LEAT_STATE_CHECKPOINT_STORE_FILES_H

#include "state/checkpoint_files.h"
#include "state/checkpoint_store.h"

enum { STORE_TOKEN_TEXT = 9, STORE_CONTENT_TEXT = 64, STORE_FOLDER_TEXT = 48 };

/* Names, sorted, each once; malloc'd. */
struct name_set {
    char **names;
    uint32_t count, capacity;
};
bool name_set_has(const struct name_set *set, struct str name);
void name_set_add(struct name_set *set, struct str name); /* does nothing where it is there */
void name_set_remove(struct name_set *set, struct str name);
void name_set_free(struct name_set *set);

/* An object that has some content, of a part with which this process began. */
struct known_content {
    struct str content, object; /* content: "db/DIGEST-BYTES" */
};

struct checkpoint_store {
    struct objects *objects;
    char token[STORE_TOKEN_TEXT];
    char folder
        [STORE_FOLDER_TEXT]; /* of parts: before all names that this process gives; "": checkpoints of a run that is alone */
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
    /* checkpoint_store_parts.c: contents that are there, sorted; objects of the part that this process put last. */
    struct known_content *contents; /* in the arena */
    uint32_t contents_count;
    struct name_set last;
};

/* Finds out, once, which of the pack's files the store has under other processes' names; such objects count as present. */
void store_know(struct checkpoint_store *store, const struct checkpoint_pack *pack);
/* The object that has the file, in the arena; NULL: none that is known. */
const char *store_known_object(struct checkpoint_store *store, const char *name, struct arena *arena);
/* Whether the known head says the same. */
bool store_knows(const struct checkpoint_store *store, const struct checkpoint_head *head);

/* checkpoint_store_parts.c. The object that has the content, and is there for certain; NULL: none that is known. */
const char *store_known_content(struct checkpoint_store *store, const char *content);
/* Puts the pack's files that are not there yet, and fills the head, whose files lie in the arena. False after a diagnostic. */
LEAT_CHECKED bool store_put_files(struct checkpoint_store *store, const struct checkpoint_pack *pack,
                                  struct arena *arena, struct checkpoint_head *head, struct diag_list *diags);

bool store_name_begins(struct str name, const char *prefix);
/* The name of the object for some content: FOLDER/DIGEST-BYTES. */
void store_content_name(const char *folder, const uint8_t digest[DIGEST_BYTES], uint64_t bytes,
                        char name[STORE_CONTENT_TEXT]);
/* The digest of a whole file by its descriptor. 0 or an errno; ENODATA: it has fewer than `bytes` bytes. */
int store_digest_fd(int fd, uint64_t bytes, uint8_t digest[DIGEST_BYTES]);

/* A restore in work. */
struct restoring {
    struct checkpoint_store *store;
    const struct group_set *groups; /* NULL: all */
    /* Of a part: xxh3-128 of the MANIFEST that it must have; of `groups` it has those of its worker. NULL: it is a checkpoint of a run
     * that was alone, and must have all of `groups`. */
    const uint8_t *part_digest;
    char temporary[PATH_BYTES];
    struct checkpoint_store_read read;
    struct diag_list *diags; /* of the checkpoint in work */
};
/* checkpoint_store_restore.c. Gets a file of the head into its place below the temporary directory, and syncs it. *bytes: gets its
 * size added. False after a diagnostic. */
LEAT_CHECKED bool restore_file(struct restoring *r, const struct checkpoint_head_file *file, uint64_t *bytes);
LEAT_CHECKED bool restore_folder(struct restoring *r,
                                 const char *path); /* the one that has the file `path` */
/* Whether the file's bytes are those of its object's name, which a table's tells; those of checkpoints have digests in their MANIFESTs.
 * False after E0711 or E0702. */
LEAT_CHECKED bool restore_check_table(struct restoring *r, const struct checkpoint_head_file *file,
                                      const char *path);
/* Each returns false. */
bool restore_cannot_write(struct diag_list *diags, const char *path, int error);
bool restore_missing(struct restoring *r, struct str object);    /* E0711: the object is not there */
bool restore_other_part(struct restoring *r, struct str object); /* E0711: it is not what the head names */
/* The head's file of that name; NULL: there is none. */
const struct checkpoint_head_file *head_file(const struct checkpoint_head *head, struct str name);
/* checkpoint_store_groups.c. Gets r->groups of the checkpoint into the temporary directory: state.bin and MANIFEST, and files of
 * databases. Verifies what the caller does not: pieces, and what RocksDB reads at once. False after a diagnostic. */
LEAT_CHECKED bool restore_groups(struct restoring *r, const struct checkpoint_head *head);

/* checkpoint_store_prune.c. Deletes what `named` has not, and has not had since the pruning before; of names that begin with one of the
 * prefixes. At most `most` deletions; *is_done: no more are due. False after a diagnostic. */
struct store_sweep {
    const char *const *prefixes;
    uint32_t prefixes_count, most;
    const struct name_set *named;
    bool is_done;
};
LEAT_CHECKED bool store_delete_unnamed(struct checkpoint_store *store, struct store_sweep *sweep,
                                       uint32_t *removed, struct diag_list *diags);
/* Whether CHECKPOINT_STORE_DELAY_US has passed since the pruning before; tests have a delay of their own. */
bool store_prune_is_due(const struct checkpoint_store *store, int64_t now_us);

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
