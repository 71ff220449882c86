/* Records in etcd: JSON objects with a version, small, and read with bounds. */
#ifndef LEAT_CLUSTER_RECORD_H
#define LEAT_CLUSTER_RECORD_H

#include "core/arena.h"

#include <jansson.h>

/* NULL: the text is no record of that version. The caller gives it to json_decref. */
json_t *record_load(struct str text, int version);
/* A number from 0 to `most`. False: the record has none of that name. */
LEAT_CHECKED bool record_number(const json_t *record, const char *name, int64_t most, int64_t *value);
/* A text of at most so many bytes, copied into the arena. False: the record has none of that name. */
LEAT_CHECKED bool record_text(const json_t *record, const char *name, size_t most, struct arena *arena,
                              struct str *text);

#endif
