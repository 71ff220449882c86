/* Resolves the `path:` option of a file source to lists of files. Private to connectors/file. */
#ifndef LEAT_CONNECTORS_FILE_PATHS_H
#define LEAT_CONNECTORS_FILE_PATHS_H

#include "core/option.h"

/* The files of one partition, in the order of reading. */
struct path_list {
    const char *name; /* the partition's name, as the job or the manifest gives it */
    const char **paths;
    uint32_t count;
};

/* Makes one partition of each entry: of a path or glob (its files in order of name), or several of a
 * directory with a manifest.json, which names partitions of its own:
 *
 *     {"partitions": [{"name": "impressions-0", "files": ["0000.jsonl.zst", "0001.jsonl.zst"]}, ...],
 *      "order_log": "order.log"}
 *
 * lists, count: the partitions, in `arena`. order_log: path of the order log (core/order_log.h) that the
 * first manifest with one names; NULL: no manifest names one. Returns false after diagnostics (E0601, E0602,
 * E0603). */
LEAT_CHECKED bool paths_expand(const struct texts *entries, struct arena *arena, struct diag_list *diags,
                               struct span span, struct path_list **lists, uint32_t *count,
                               const char **order_log);

#endif
