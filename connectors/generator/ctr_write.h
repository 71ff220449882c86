/* `leat generate ctr`: writes the click stream to files, with the truth about it. One thread. */
#ifndef LEAT_CONNECTORS_GENERATOR_CTR_WRITE_H
#define LEAT_CONNECTORS_GENERATOR_CTR_WRITE_H

#include "connectors/generator/ctr_lines.h"

struct ctr_write_options {
    uint64_t events, seed;
    double rate;
    bool is_labelled;                   /* one file with labels, instead of impressions and clicks */
    bool is_forced;                     /* replace existing files */
    double duplicates, late, malformed; /* shares of rows to plant, in [0, 1] */
    int64_t late_ms;
    const char *directory;
    /* Called regularly; may be NULL. */
    void (*on_progress)(uint64_t done, uint64_t total);
};

/* Writes impressions.jsonl and clicks.jsonl, or ctr.jsonl, and truth.json: counts of what was planted, and
 * the scores of a model that knew each p, but no event's p. Returns false after diagnostics; a file has its
 * final name only if it is complete. */
bool ctr_write(const struct ctr_write_options *options, struct diag_list *diags);

#endif
