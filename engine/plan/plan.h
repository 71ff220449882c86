/* From a job to what runs: names resolved, options bound, schemas inferred, nodes cut into stages.
 *
 * A plan is a graph of nodes (sources, operators, learners, sinks) in an order in which each comes after its
 * inputs. A stage is a set of nodes that a lane runs, for one number, by direct calls. Between stages are
 * exchanges. Stages are of three sorts: STAGE_SOURCES  stage 0: decoded rows and what depends on a row alone;
 * any lane takes the next number STAGE_KEYED    one instance per lane, each with the rows of its key groups
 *   STAGE_SINGLE   one instance: learners, sinks, whatever sees all rows in the one order
 * The cut does not depend on the number of lanes. Everything in a plan is immutable and belongs to its arena.
 */
#ifndef LEAT_PLAN_PLAN_H
#define LEAT_PLAN_PLAN_H

#include "core/buffer.h"
#include "core/claims.h"
#include "core/learner.h"
#include "core/registry.h"
#include "lang/lang.h"

enum {
    PLAN_NODES_MAX = 256,
    PLAN_STAGES_MAX = 64,
    PLAN_SOURCES_MAX = 64,
    PLAN_OUTPUT_DEAD = OPERATOR_OUTPUTS_MAX, /* the output number of dead letters */
};

/* `job NAME { ... }`. */
struct job_keep {
    int64_t last, hourly, daily;
};
struct job_checkpoint {
    int64_t every_us;
    struct str directory; /* length 0: no checkpoints */
    struct job_keep keep;
    int64_t free_bytes; /* pause the sources when the disk has less */
};
struct job_config {
    int64_t workers; /* 0: one per core */
    int64_t memory_bytes;
    struct job_checkpoint checkpoint;
};
extern const struct option job_options[];

/* How a source's watermark follows its rows: the choices of `watermark:`, in their order. */
enum watermark_strategy { WATERMARK_BOUNDED, WATERMARK_PER_KEY, WATERMARK_PUNCTUATION };

struct watermark_per_key {
    struct columns by;
    int *indices; /* of `by` */
    int64_t within_us, keys_max;
};

struct watermark_punctuation {
    struct expression when;
    bool drops;
    const struct condition_kind *kind;
    const void *condition;
};

/* Options that every source has, besides its kind's own. */
struct source_common {
    struct schema *schema;        /* NULL: the kind's own */
    struct column_ref event_time; /* length 0: none */
    struct kind_ref watermark;    /* enum watermark_strategy and its struct */
    int64_t max_delay_us;
    int64_t max_jump_us; /* 0: not given; TIME_MAX: any */
    int64_t align_us;    /* 0: waits for nobody */
    int64_t idle_after_us;
    int64_t order_wait_us;
};
extern const struct option source_options[];

enum plan_node_tag { PLAN_SOURCE, PLAN_OPERATOR, PLAN_LEARNER, PLAN_SINK };

/* Where an input comes from. */
struct plan_edge {
    uint32_t node;   /* index of the producer */
    uint32_t output; /* of operator_bind.outputs, or PLAN_OUTPUT_DEAD */
};

struct plan_node {
    enum plan_node_tag tag;
    uint32_t place;    /* index in plan.nodes */
    struct str name;   /* of the source, stream, learner or sink it belongs to */
    const char *label; /* for people: "features: dedup", "scored: file" */
    struct span span;
    struct span path_span; /* of the option that says where it reads or writes; else of the kind */
    struct str owns;       /* sink: what it alone writes, for people; length 0: nothing */
    const char *owns_glob; /* the same as a glob */
    struct str
        recording; /* source: what --replay names, where that is no path of its options; else length 0 */
    const struct operator_kind *operator_kind; /* PLAN_OPERATOR, PLAN_LEARNER */
    const struct source_kind *source_kind;
    const struct sink_kind *sink_kind;
    void *config;                 /* the bound option struct */
    struct source_common *common; /* PLAN_SOURCE */
    uint32_t source_index;        /* PLAN_SOURCE: among the sources */
    bool is_stand_in;             /* sink: of --sink or --replay, in place of the job's own */
    bool is_bounded, is_replayable, is_live;
    struct plan_edge inputs[OPERATOR_INPUTS_MAX];
    uint32_t inputs_count;
    struct operator_input bound[OPERATOR_INPUTS_MAX]; /* schemas and key columns as bind left them */
    const struct schema *outputs[OPERATOR_OUTPUTS_MAX];
    const char *output_names[OPERATOR_OUTPUTS_MAX]; /* of the side outputs; of a learner all have one */
    int64_t hold_us;                                /* of this node alone */
    bool needs_memory;
    bool has_time;      /* its rows have an event time */
    bool has_arrival;   /* its rows say when they arrived */
    bool is_by_arrival; /* its watermarks are the clock of arrival */
    uint32_t stage;
    /* How rows are spread over instances, for fusing: columns of outputs[0], none: not by key. */
    struct str *partitioned_by;
    uint32_t partitioned_count;
    struct str settings_text; /* canonical text of its options: fingerprint, explain */
    /* How checkpoints know it: "features/dedup", "features/feature.2", of a source or learner its name, of a
     * sink "sink/NAME". What is put before it does not change it, but for another of its kind. */
    const char *part;
    struct str shape; /* what its state stands on (core/shape.h) */
    bool has_state;
};

enum plan_stage_tag { STAGE_SOURCES, STAGE_KEYED, STAGE_SINGLE };

struct plan_stage {
    enum plan_stage_tag tag;
    uint32_t *nodes; /* places, rising */
    uint32_t nodes_count;
};

enum exchange_mode {
    EXCHANGE_HASH,    /* by key group of the key columns */
    EXCHANGE_FORWARD, /* lane i to lane i; from stage 0: number modulo lanes */
    EXCHANGE_SINGLE,  /* all to the one instance */
};

struct plan_exchange {
    struct plan_edge from;
    uint32_t to_node, to_input;
    uint32_t from_stage, to_stage;
    enum exchange_mode mode;
    const int *key_columns;
    uint32_t key_count;
};

struct plan {
    struct arena *arena;
    struct str name;
    struct claims *claims; /* what it reads and writes; NULL: not asked for */
    struct job_config config;
    struct plan_node *nodes;
    uint32_t nodes_count;
    uint32_t sources[PLAN_SOURCES_MAX]; /* places */
    uint32_t sources_count;
    struct plan_stage *stages;
    uint32_t stages_count;
    struct plan_exchange *exchanges;
    uint32_t exchanges_count;
    struct str job_text; /* as read, and the `--set`s as NAME=VALUE, one a line: kept in checkpoints, so that
                            a model */
    struct str job_settings; /* can be opened without its job file */
    char fingerprint[33];    /* of what reaches state: not lanes, paths, intervals */
    bool has_state;
    bool has_arrival_clock; /* some node goes by arrival */
    bool follows_load;      /* some node does what the load of a number says */
    bool has_alignment;     /* some source has `align:` */
};

struct plan_replace {
    struct str name;  /* of a source or sink */
    struct str value; /* glob or path */
};

struct plan_options {
    const struct registry *registry;
    const struct plan_replace *replays; /* source -> recorded files */
    uint32_t replays_count;
    const struct plan_replace *sinks; /* sink -> path */
    uint32_t sinks_count;
    /* Sinks not named in `sinks` write nothing but counts; checkpoints lie in a directory of the replay's
     * own. */
    bool is_replay;
    /* In the arena; may have claims beside the plan's, such as the job's file. They are checked with the
     * plan. NULL: the plan is not to run. */
    struct claims *claims;
};

/* The job must be expanded. NULL after diagnostics; reports every error it finds. */
struct plan *plan_make(const struct job_file *job, const struct plan_options *options, struct arena *arena,
                       struct diag_list *diags);

/* The rows of dead letters. place: the partition's name; topic, partition, offset: where sources have them.
 * time: of arrival. raw, key, headers (JSON, [["name","value"]]): of the record, where they are known; bytes
 * that are not UTF-8 as `?`, and then raw_bytes and key_bytes are what they were. */
extern const struct schema plan_dead_schema;
enum {
    DEAD_JOB,
    DEAD_SOURCE,
    DEAD_PLACE,
    DEAD_TOPIC,
    DEAD_PARTITION,
    DEAD_OFFSET,
    DEAD_TIME,
    DEAD_RECORD,
    DEAD_STEP,
    DEAD_REASON,
    DEAD_KEY,
    DEAD_KEY_BYTES,
    DEAD_HEADERS,
    DEAD_RAW,
    DEAD_RAW_BYTES,
    DEAD_COLUMNS
};

/* The plan as text, as Graphviz dot, as SVG. */
void plan_explain(const struct plan *plan, struct byte_buffer *out);
void plan_dot(const struct plan *plan, struct byte_buffer *out);
void plan_svg(const struct plan *plan, struct byte_buffer *out);
/* How far the watermark of each node stays behind the newest event, and because of whom: text, picture. */
void plan_explain_time(const struct plan *plan, struct byte_buffer *out);
void plan_time_svg(const struct plan *plan, struct byte_buffer *out);
/* For each column of each stream the source columns and labels from which its values derive: text. */
void plan_explain_lineage(const struct plan *plan, struct byte_buffer *out);

#endif
