/* `leat trace`: finds out what became of one record.
 *
 * A run is made for the trace alone: on one lane, from the newest checkpoint whose positions lie before the
 * record, or from the beginning. This run executes the job's micro-batches again, by the order log as far as
 * the log reaches. It changes nothing: it takes no lock and no checkpoint, writes no order log, and opens no
 * sink; rows that would be written are kept in the trace.
 *
 * Where a row of the record comes to a node, the node gets the row in a batch of its own. The node's counters
 * before and after this call tell what became of the row, and rows that leave the node during the call were
 * made from it. No result depends on where batches end, so nothing else changes. If a row of the record
 * leaves a node later, the node has held it. The run stops when no node holds a row of the record any more,
 * or when the inputs have no more records. */
#ifndef LEAT_RUN_TRACE_H
#define LEAT_RUN_TRACE_H

#include "run/run.h"
#include "state/checkpoint.h"

enum trace_by {
    TRACE_BY_RECORD, /* index of the record in the partition, from 0, as dead letters have it */
    TRACE_BY_OFFSET, /* offset of the record (source_kind.has_offsets) */
    TRACE_BY_LINE,   /* line of a file, from 1 */
};

enum trace_end {
    TRACE_FOLLOWED, /* until no node held a row of the record */
    TRACE_HELD,     /* an operator still holds a row of the record, and the inputs have no more records */
    /* No record is at the place, although the partition, or its log, goes on behind it. */
    TRACE_NOTHING,
    TRACE_BEYOND, /* the partition ends before the record */
};

enum trace_tag {
    TRACE_READ,  /* a source read the record; unless the record is bad, rows[0] is the source's row */
    TRACE_GIVEN, /* a node was given a row */
    TRACE_LATER, /* a node let out a row that it had held */
};

enum { TRACE_STEPS_MAX = 1024, TRACE_ROWS_MAX = 32 };

struct trace_step {
    enum trace_tag tag;
    const struct plan_node *node;
    uint32_t input;         /* TRACE_GIVEN: index of the node's input */
    uint64_t micro_batch;   /* number of the micro-batch in work */
    int64_t watermark;      /* the node's watermark, by which rows are late, in microseconds */
    struct counters counts; /* by how much the node's counters rose */
    struct batch *row;      /* TRACE_GIVEN: a view of the row alone */
    struct row_facts facts;
    const char *reason, *raw; /* of a dead letter: its reason and its bytes; NULL: none */
    struct {
        struct batch *batch; /* a view of one row */
        uint32_t output;
    } rows[TRACE_ROWS_MAX];
    uint32_t rows_count;
    uint64_t rows_left; /* rows that did not fit into `rows` */
};

struct trace {
    /* In. */
    struct str source, place; /* as the user wrote them */
    /* Set by trace_resolve. */
    uint32_t source_index, partition; /* index in the plan's sources; index in the source's partitions */
    const char *partition_name;
    enum trace_by by; /* TRACE_BY_RECORD or TRACE_BY_OFFSET */
    int64_t at;       /* index or offset of the record, by `by` */
    int64_t line;     /* line by which the record was named; else 0 */
    /* Results, until trace_release. */
    enum trace_end end;
    bool is_found; /* the record has been read */
    uint64_t micro_batch,
        record;                /* micro-batch that holds the record; index of the record in the partition */
    struct checkpoint_id from; /* checkpoint the trace began from; generation 0: from the beginning */
    uint64_t ordered; /* micro-batches below this number were ordered by an order log; UINT64_MAX: all */
    struct trace_step *steps;
    uint32_t steps_count;
    uint64_t steps_left;           /* steps that did not fit */
    uint64_t held[PLAN_NODES_MAX]; /* per node: rows of the record that it holds */
    /* Private to trace.c. */
    struct arena arena; /* freed by the trace's owner */
    struct row_origin origin;
    uint64_t last;                 /* micro-batch of the last step */
    uint32_t open[PLAN_NODES_MAX]; /* per node: index of its step in work, from 1; 0: none */
    bool is_over;
};

/* Callbacks by which the sequencer tells the trace what it read (run/base/base.h). */
struct run_observer;
extern const struct run_observer trace_observer;

/* Finds the source, the partition and the record that trace->source and trace->place name. Opens that source
 * alone; if the place names a line, reads the source up to this line. false after a diagnostic. */
bool trace_resolve(struct trace *trace, const struct plan *plan, struct diag_list *diags);
/* Call after run_wait: sets trace->end. */
void trace_finish(struct trace *trace);
/* Call before run_free: frees the steps, whose batches belong to the run. Then the trace can be used for
 * another run. */
void trace_release(struct trace *trace);

#endif
