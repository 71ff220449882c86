/* Which files a `path:` option means. Private to connectors/file. */
#ifndef LEAT_CONNECTORS_FILE_PATHS_H
#define LEAT_CONNECTORS_FILE_PATHS_H

#include "core/option.h"

/* The files of one partition, in the order of reading. */
struct path_list {
    const char *name; /* what the job or the manifest calls it */
    const char **paths;
    uint32_t count;
};

/* One partition for each entry: a path or glob (its files in order of name), or a directory with a
 * manifest.json, which names partitions of its own:
 *     {"partitions": [{"name": "impressions-0", "files": ["0000.jsonl.zst", "0001.jsonl.zst"]}, ...],
 *      "order_log": "order.log"}
 * order_log: of the first manifest that has one (core/order_log.h); NULL: none has.
 * False after diagnostics (E0601, E0602, E0603). */
LEAT_CHECKED bool paths_expand(const struct texts *entries, struct arena *arena, struct diag_list *diags,
                               struct span span, struct path_list **lists, uint32_t *count,
                               const char **order_log);

#endif
