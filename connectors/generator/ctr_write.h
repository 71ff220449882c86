/* `leat generate ctr`: the click stream as recorded files, and the truth about them. One thread. */
#ifndef LEAT_CONNECTORS_GENERATOR_CTR_WRITE_H
#define LEAT_CONNECTORS_GENERATOR_CTR_WRITE_H

#include "connectors/generator/ctr_lines.h"

struct ctr_write_options {
    uint64_t events, seed;
    double rate;
    bool is_labelled;                   /* one file with labels instead of impressions and clicks */
    bool is_forced;                     /* replaces existing files */
    double duplicates, late, malformed; /* shares of rows, in [0, 1] */
    int64_t late_ms;
    const char *directory;
    /* Called now and then; may be NULL. */
    void (*on_progress)(uint64_t done, uint64_t total);
};

/* Writes impressions.jsonl and clicks.jsonl, or ctr.jsonl, and truth.json beside them: counts of what was
 * planted, and what a model that knew each p would score; no event's p. false + diagnostics; no file then has
 * its name that is not whole. */
bool ctr_write(const struct ctr_write_options *options, struct diag_list *diags);

#endif
