/* Private to store.c and store_scan.c. */
#ifndef LEAT_STATE_STORE_INTERNAL_H
#define LEAT_STATE_STORE_INTERNAL_H

#include "state/store.h"

#include <pthread.h>
#include <stdatomic.h>

struct filter;

struct state_store {
    char *directory;
    size_t memory_bytes;
    bool is_read_only;     /* files are not merged */
    pthread_mutex_t mutex; /* guards the creation of the database, users, rules and `error` */
    rocksdb_t *_Atomic database;
    rocksdb_column_family_handle_t *family;
    rocksdb_options_t *options;
    rocksdb_cache_t *cache;
    rocksdb_compactionfilterfactory_t *factory;
    rocksdb_readoptions_t *read_options;
    rocksdb_writeoptions_t *write_options;
    atomic_ullong releases;
    atomic_llong pressure;
    atomic_ullong written; /* bytes of batches */
    char *_Atomic error;
    struct store_user *users;
    struct filter *rules;
    bool is_temporary, is_alone; /* is_alone: one instance's alone */
};

/* The store has failed: "what: text". Takes over the text, which is malloc'd. */
void store_fail(struct state_store *store, const char *what, char *text);
/* The database's own log has what it says at opening alone. Errors come back by the calls that failed; were these written to the log, too,
 * a log without room for a line would end the process at the next line (an assertion of RocksDB 7.8 as Debian builds it). */
void store_keep_log_short(rocksdb_options_t *options);

#endif
