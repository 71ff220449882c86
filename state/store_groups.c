/* The database of a process: leaving out what some key groups do not need, before its table files are there.
 *
 * RocksDB names its files, with their first and last keys, in its own MANIFEST, and forgets the files of a range of keys without
 * reading them. It opens without them where its paranoid checks are off. So a restore gets the small files first, lets the database
 * forget, and then gets what it still names. */
#include "state/store_internal.h"

#include <stdlib.h>

enum {
    USER_BYTES = 3,                                           /* of a key: id and kind */
    TABLE_KEY_BYTES = STORE_PREFIX_BYTES + sizeof(struct key) /* and with a stay */
};

static rocksdb_options_t *make_options(void)
{
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_paranoid_checks(options, 0);
    rocksdb_options_set_disable_auto_compactions(options, 1);
    rocksdb_options_set_skip_stats_update_on_db_open(options, 1);
    rocksdb_options_set_skip_checking_sst_file_sizes_on_db_open(options, 1);
    store_keep_log_short(options);
    return options;
}

/* The key group in the key of a keyed table; KEY_GROUPS: it is a queue's, a cold row's, or the end of a deleted range. */
static uint32_t group_of(const char *key, size_t bytes)
{
    if (bytes != TABLE_KEY_BYTES && bytes != TABLE_KEY_BYTES + STORE_STAY_BYTES)
        return KEY_GROUPS;
    uint32_t group = (uint32_t)(unsigned char)key[USER_BYTES] << 8 | (unsigned char)key[USER_BYTES + 1];
    return MIN(group, (uint32_t)KEY_GROUPS);
}

/* Whether file number `index` has rows of one table alone, of groups outside of the set. *first: gets the first
 * group of the gap in the set that has them; *limit: the first behind it. */
static bool is_needless(const rocksdb_livefiles_t *files, int index, const struct group_set *groups,
                        uint32_t *first, uint32_t *limit)
{
    size_t bytes[2];
    const char *keys[2] = {rocksdb_livefiles_smallestkey(files, index, &bytes[0]),
                           rocksdb_livefiles_largestkey(files, index, &bytes[1])};
    uint32_t smallest = group_of(keys[0], bytes[0]), largest = group_of(keys[1], bytes[1]);
    if (smallest == KEY_GROUPS || largest == KEY_GROUPS || memcmp(keys[0], keys[1], USER_BYTES) != 0 ||
        group_set_next(groups, smallest) <= largest)
        return false;
    *limit = group_set_next(groups, largest);
    for (*first = smallest; *first > 0 && !group_set_has(groups, *first - 1); --*first)
        ;
    return true;
}

/* Returns the error's text; NULL: there is none. */
static char *forget(rocksdb_t *database, const struct group_set *groups)
{
    const rocksdb_livefiles_t *files = rocksdb_livefiles(database);
    char before[STORE_PREFIX_BYTES] = {0}, *text = NULL; /* the range before; no user has id 0 and kind 0 */
    for (int i = 0; i < rocksdb_livefiles_count(files) && text == NULL; i++) {
        uint32_t first, limit;
        size_t bytes;
        char from[STORE_PREFIX_BYTES], to[STORE_PREFIX_BYTES];
        if (!is_needless(files, i, groups, &first, &limit))
            continue;
        const char *key = rocksdb_livefiles_smallestkey(files, i, &bytes);
        uint16_t id = (uint16_t)((unsigned char)key[0] << 8 | (unsigned char)key[1]);
        store_prefix(from, id, (uint8_t)key[2], first);
        store_prefix(to, id, (uint8_t)key[2], limit);
        if (memcmp(from, before, sizeof(from)) != 0) /* else it went with the file before */
            rocksdb_delete_file_in_range(database, from, sizeof(from), to, sizeof(to), &text);
        memcpy(before, from, sizeof(from));
    }
    rocksdb_livefiles_destroy(files);
    return text;
}

char *store_forget_groups(const char *path, const struct group_set *groups, struct arena *arena,
                          const char ***names, uint32_t *count)
{
    char *text = NULL;
    rocksdb_options_t *options = make_options();
    rocksdb_t *database = rocksdb_open(options, path, &text);
    *names = NULL;
    *count = 0;
    if (database != NULL)
        text = forget(database, groups);
    if (database != NULL && text == NULL) {
        const rocksdb_livefiles_t *files = rocksdb_livefiles(database);
        *count = (uint32_t)rocksdb_livefiles_count(files);
        *names = arena_array(arena, const char *, MAX(*count, 1U));
        for (uint32_t i = 0; i < *count; i++) {
            const char *name = rocksdb_livefiles_name(files, (int)i);
            (*names)[i] = arena_strdup(arena, name[0] == '/' ? name + 1 : name);
        }
        rocksdb_livefiles_destroy(files);
    }
    if (database != NULL)
        rocksdb_close(database);
    rocksdb_options_destroy(options);
    return text;
}
