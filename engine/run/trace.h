/* `leat trace`: what became of one record.
 *
 * A run is made for it alone: on one lane, from the newest checkpoint whose positions lie before the record,
 * or from the beginning. It executes again what the job executed, by the order log as far as that reaches,
 * and changes nothing: it takes no lock and no checkpoint, writes no order log, and opens no sink; rows that
 * would be written are kept here.
 *
 * Where a row of the record comes to a node, the node gets it in a batch of its own: what its counters gain
 * by that is what became of the row, and what leaves the node meanwhile is what the row was made into. No
 * result depends on where batches end, so that all else is as it was. Rows of the record that leave a node
 * later were held by it. The run stops when no node has anything of the record left, or when the inputs have
 * no more. */
#ifndef LEAT_RUN_TRACE_H
#define LEAT_RUN_TRACE_H

#include "run/run.h"
#include "state/checkpoint.h"

enum trace_by {
    TRACE_BY_RECORD, /* its number in the partition, from 0, as dead letters have it */
    TRACE_BY_OFFSET, /* where the source counts so (source_kind.has_offsets) */
    TRACE_BY_LINE,   /* of a file, from 1 */
};

enum trace_end {
    TRACE_FOLLOWED, /* to where nothing of it is left */
    TRACE_HELD,     /* an operator still has something of it, and the inputs have no more */
    TRACE_NOTHING,  /* the partition goes on behind the place, or its log ends there, and has no record there
                     */
    TRACE_BEYOND,   /* the partition ends before it */
};

enum trace_tag {
    TRACE_READ,  /* by a source; not `dead`: rows[0] is what it says */
    TRACE_GIVEN, /* to a node */
    TRACE_LATER, /* what a node had held comes out */
};

enum { TRACE_STEPS_MAX = 1024, TRACE_ROWS_MAX = 32 };

struct trace_step {
    enum trace_tag tag;
    const struct plan_node *node;
    uint32_t input;         /* GIVEN: which */
    uint64_t number;        /* in work */
    int64_t watermark;      /* by which rows were judged */
    struct counters counts; /* what the node's gained */
    struct batch *row;      /* GIVEN: a view of it alone */
    struct row_facts facts;
    const char *reason, *raw; /* of a dead letter, its bytes; NULL: none */
    struct {
        struct batch *batch; /* a view of one row */
        uint32_t output;
    } rows[TRACE_ROWS_MAX];
    uint32_t rows_count;
    uint64_t rows_left; /* more of them */
};

struct trace {
    /* In. */
    struct str source, place; /* as the user wrote them */
    /* By trace_resolve. */
    uint32_t source_index, partition; /* of the plan's sources; of the source's partitions */
    const char *partition_name;
    enum trace_by by; /* RECORD or OFFSET */
    int64_t at;
    int64_t line; /* where it was named by its line; else 0 */
    /* Out; until run_free. */
    enum trace_end end;
    bool is_found;
    uint64_t number, record;   /* where it was merged; its number in the partition */
    struct checkpoint_id from; /* generation 0: the beginning */
    uint64_t ordered;          /* numbers below it were merged by an order log; UINT64_MAX: all */
    struct trace_step *steps;
    uint32_t steps_count;
    uint64_t steps_left;           /* more than fit */
    uint64_t held[PLAN_NODES_MAX]; /* rows of the record that each node has */
    /* trace.c's own. */
    struct arena arena; /* the owner frees it at last */
    struct row_origin origin;
    uint64_t last;                 /* number of the last step */
    uint32_t open[PLAN_NODES_MAX]; /* step in work, from 1 */
    bool is_over;
};

/* Finds the source, the partition and the record that `source` and `place` name: opens the source alone, and
 * reads it up to a line. false after a diagnostic. */
bool trace_resolve(struct trace *trace, const struct plan *plan, struct diag_list *diags);
/* After run_wait. */
void trace_finish(struct trace *trace);
/* Before run_free: gives back what is the run's. Then the trace may go into another. */
void trace_release(struct trace *trace);

#endif
