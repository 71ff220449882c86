/* From a job tree to a plan that can run: names resolved, options bound, schemas inferred, nodes cut into
 * stages.
 *
 * A plan is a graph of nodes (sources, operators, learners, sinks) in an order in which each comes after its
 * inputs. A stage is a set of nodes that a lane runs, for one micro-batch, by direct calls. Between stages
 * are exchanges. There are three kinds of stage:
 *   STAGE_SOURCES  stage 0: decoded rows, and operators that depend on a row alone; any lane takes the next
 *                  micro-batch
 *   STAGE_KEYED    one instance per lane, each with the rows of its key groups
 *   STAGE_SINGLE   one instance: learners, sinks, and operators that see all rows, in row_order
 * The cut does not depend on the number of lanes. Everything in a plan is immutable and belongs to its
 * arena. */
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
    PLAN_OUTPUT_DEAD = OPERATOR_OUTPUTS_MAX, /* output index of dead letters */
};

/* The options of `job NAME { ... }`. */
struct job_keep {
    int64_t last, hourly, daily; /* numbers: newest checkpoints; hours and days of which the last stays */
};
/* When sinks commit the output that a checkpoint covers; in the order of the option's words. */
enum job_commit { COMMIT_LOCAL, COMMIT_STORE };
struct job_checkpoint {
    int64_t every_us;
    struct str directory; /* length 0: no checkpoints */
    struct str store;     /* URL of an object store (state/objects); length 0: none */
    int commit;           /* enum job_commit */
    int64_t behind;       /* COMMIT_STORE: of so many checkpoints that the store lacks the sources wait */
    struct job_keep keep;
    int64_t free_bytes; /* the sources pause when the disk has less free space */
    int64_t log_bytes;  /* of the delta log (run/publish) */
};
/* The control API with the page, while `leat run` goes on; not of replays. */
struct job_ui {
    struct str listen;                       /* length 0: none */
    struct str token_file, certificate, key; /* paths; length 0: none */
};
struct job_config {
    int64_t workers; /* number of lanes; 0: one per core */
    int64_t memory_bytes;
    struct job_checkpoint checkpoint;
    struct job_ui ui;
};
extern const struct option job_options[];
/* The options of `serve NAME { ... }`, with those of the registry's kind of log; lives in the arena. */
const struct option *plan_serve_options(const struct registry *registry, struct arena *arena);

/* How a source's watermark follows its rows: the choices of `watermark:`, in their order. */
enum watermark_strategy { WATERMARK_BOUNDED, WATERMARK_PER_KEY, WATERMARK_PUNCTUATION };

struct watermark_per_key {
    struct columns by;
    int *indices; /* column index of each of `by` */
    /* within_us: a key without rows for this long, by event time, no longer counts. keys_max: number of keys
     * remembered per partition. */
    int64_t within_us, keys_max;
};

struct watermark_punctuation {
    struct expression when;            /* true for the rows that carry the watermark */
    bool drops;                        /* these rows go no further */
    const struct condition_kind *kind; /* runs `condition` */
    const void *condition;             /* `when`, compiled */
};

/* Options that every source has, besides its kind's own. */
struct source_common {
    struct schema *schema;        /* NULL: the source kind's own schema */
    struct column_ref event_time; /* length 0: the source has no event time */
    struct kind_ref watermark;    /* enum watermark_strategy and its struct */
    int64_t max_delay_us;
    int64_t max_jump_us; /* 0: not given; TIME_MAX: any jump is allowed */
    int64_t align_us;    /* 0: rows never wait for other sources */
    int64_t idle_after_us;
    int64_t order_wait_us;
};
extern const struct option source_options[];

enum plan_node_tag { PLAN_SOURCE, PLAN_OPERATOR, PLAN_LEARNER, PLAN_SINK };

/* Where the rows of an input come from. */
struct plan_edge {
    uint32_t node;   /* place of the producing node */
    uint32_t output; /* index in operator_bind.outputs, or PLAN_OUTPUT_DEAD */
};

struct plan_node {
    enum plan_node_tag tag;
    uint32_t place;    /* index in plan.nodes */
    struct str name;   /* of the source, stream, learner or sink that the node belongs to */
    const char *label; /* for messages: "features: dedup", "scored: file" */
    struct span span;
    struct span path_span; /* of the option that says where the node reads or writes; else of the kind */
    struct str owns;       /* sink: what only this sink writes, for messages; length 0: nothing */
    const char *owns_glob; /* `owns` as a glob */
    /* Source: the path that --replay names, if the source kind has a kind of its own for recordings and the
     * path is not one of the options; else length 0. */
    struct str recording;
    const struct operator_kind *operator_kind; /* PLAN_OPERATOR, PLAN_LEARNER */
    const struct source_kind *source_kind;
    const struct sink_kind *sink_kind;
    void *config;                 /* the bound option struct */
    struct source_common *common; /* PLAN_SOURCE */
    uint32_t source_index;        /* PLAN_SOURCE: index in plan.sources */
    bool is_stand_in;             /* sink: replaces the sink that the job declares, for --sink or --replay */
    /* is_bounded: the rows end by themselves; of an operator: if the rows of all its inputs end.
     * is_replayable, is_live: PLAN_SOURCE, as in struct source_bind. */
    bool is_bounded, is_replayable, is_live;
    struct plan_edge inputs[OPERATOR_INPUTS_MAX];
    uint32_t inputs_count;
    /* Schemas and key columns as the operator's bind left them. */
    struct operator_input bound[OPERATOR_INPUTS_MAX];
    const struct schema *outputs[OPERATOR_OUTPUTS_MAX];
    /* Names of the side outputs; of a learner all outputs have one. */
    const char *output_names[OPERATOR_OUTPUTS_MAX];
    /* How far this node's output watermark stays behind its input watermark, in microseconds; INT64_MAX:
     * until the input ends. */
    int64_t hold_us;
    bool needs_memory;  /* keeps state: gets a share of job_config.memory_bytes */
    bool goes_on;       /* may have work left when the inputs have ended (operator_kind.wants_more) */
    bool has_time;      /* the node's rows have an event time */
    bool has_arrival;   /* the node's rows have an arrival time */
    bool is_by_arrival; /* the node's watermark is the arrival clock */
    uint32_t stage;
    /* Names of columns of outputs[0]: rows with equal values in all of them are on one instance. None: rows
     * are not spread by key. */
    struct str *partitioned_by;
    uint32_t partitioned_count;
    struct str settings_text; /* canonical text of the options, for the fingerprint and for explain */
    /* The node's name in checkpoints: "features/dedup", "features/feature.2" for the second operator of
     * that kind; the name of a source or learner; "sink/NAME" of a sink. Nodes put before it do not change
     * the name, except those of its own kind in the same stream. */
    const char *part;
    /* PLAN_LEARNER: from what the labels derive, without the columns of `known_early`. */
    struct lineage labels;
    /* PLAN_LEARNER (core/learner.h): the inputs that have rows to score, and a catalogue of items; 0: there is none. */
    uint32_t scored_input, items_input;
    struct str shape; /* what the node's state depends on (core/shape.h) */
    bool has_state;
};

enum plan_stage_tag { STAGE_SOURCES, STAGE_KEYED, STAGE_SINGLE };

struct plan_stage {
    enum plan_stage_tag tag;
    uint32_t *nodes; /* places of nodes, rising */
    uint32_t nodes_count;
};

enum exchange_mode {
    EXCHANGE_HASH,    /* by key group of the key columns */
    EXCHANGE_FORWARD, /* from lane i to lane i; from stage 0: micro-batch number modulo lanes */
    EXCHANGE_SINGLE,  /* all rows to the one instance */
};

struct plan_exchange {
    struct plan_edge from;
    uint32_t to_node, to_input;
    uint32_t from_stage, to_stage;
    enum exchange_mode mode;
    const int *key_columns;
    uint32_t key_count;
};

/* The log of what was served (serve_log.c). */
struct plan_serve_log {
    struct str path; /* of files; empty: no files */
    double sample;
    int64_t rotate_bytes, keep;
    const struct line_log_kind *kind; /* NULL: files, or no log at all */
    /* The kind's option struct. */
    _Alignas(max_align_t) unsigned char config[LINE_LOG_CONFIG_BYTES];
};

/* How `leat serve` answers requests; `leat score` uses none of it. */
struct plan_serving {
    struct str listen;
    int64_t deadline_us, queue_rows, body_bytes;
    int64_t max_staleness_us; /* 0: none */
    int64_t publish_us;       /* a running job publishes what its learners changed this often */
    struct plan_serve_log log;
};

/* A `serve` of the job: the way of a request's row from a source to its answer (build_serve.c). */
struct plan_serve {
    struct str name;
    struct span span; /* of its name */
    struct plan_serving serving;
    uint32_t request; /* place of the source whose columns a request has */
    /* Places of the nodes on the way, each behind the one before; inputs[i], outputs[i]: where the way goes into
     * steps[i], and out of it. The last output gives the answers. */
    uint32_t *steps, *inputs, *outputs;
    uint32_t steps_count;
    bool *is_needed; /* by column of the source: by its lineage some step uses it; others may be missing */
    bool *is_hidden; /* by column of the answer: it derives from a label, and has no value */
};

enum plan_input_tag { PLAN_INPUT_LIBRARY, PLAN_INPUT_FILE, PLAN_INPUT_VALUE };

/* Something that the job reads besides its records (inputs.c): a library, a table or schema, a value of env(...)
 * or file(...). Secrets are none. */
struct plan_input {
    enum plan_input_tag tag;
    struct str name;   /* as the job has it: a path, or `env("NAME")` */
    const char *where; /* who reads it: "`lookup` in `joined`", separated by commas */
    const char *path;  /* of a library or file; NULL: a value */
    int64_t bytes;     /* size; of files, once they are measured, as are the next two */
    char digest[33];   /* xxh3-128 of its bytes, as hex digits; "": unknown */
    int error;         /* errno, where the file cannot be read */
};

struct plan {
    struct arena *arena;
    struct str name;
    struct claims *claims; /* what the job reads and writes; NULL: not asked for */
    struct job_config config;
    struct plan_node *nodes;
    uint32_t nodes_count;
    uint32_t sources[PLAN_SOURCES_MAX]; /* places of the sources in `nodes` */
    uint32_t sources_count;
    struct plan_stage *stages;
    uint32_t stages_count;
    struct plan_exchange *exchanges;
    uint32_t exchanges_count;
    struct plan_serve *serves;
    uint32_t serves_count;
    struct plan_input *inputs; /* without digests of files: plan_inputs_measured */
    uint32_t inputs_count;
    /* Text of the job as it was read, and its `--set`s, one NAME=VALUE a line. Checkpoints keep both, so
     * that a model can be opened without its job file. */
    struct str job_text;
    struct str job_settings;
    char fingerprint[33]; /* digest of what reaches state: not lanes, paths, intervals */
    bool has_state;
    bool has_arrival_clock; /* some node's watermark is the arrival clock */
    bool follows_load;      /* some node's work depends on the load level of the micro-batch */
    bool has_alignment;     /* some source has `align:` */
};

/* Bit i: a node reads outputs[i] of the node at `place`. */
static inline uint32_t plan_outputs_read(const struct plan *plan, uint32_t place)
{
    uint32_t read = 0;
    for (uint32_t n = 0; n < plan->nodes_count; n++)
        for (uint32_t i = 0; i < plan->nodes[n].inputs_count; i++)
            if (plan->nodes[n].inputs[i].node == place)
                read |= UINT32_C(1) << plan->nodes[n].inputs[i].output;
    return read;
}

/* The output that gives the answers of a `serve`, and its schema. */
static inline struct plan_edge plan_answer(const struct plan_serve *serve)
{
    uint32_t last = serve->steps_count - 1;
    return (struct plan_edge){serve->steps[last], serve->outputs[last]};
}
static inline const struct schema *plan_answer_schema(const struct plan *plan, const struct plan_serve *serve)
{
    struct plan_edge edge = plan_answer(serve);
    return plan->nodes[edge.node].outputs[edge.output];
}

/* following.c. How a follower keeps a node's state between checkpoints; FOLLOWING_NOTHING of nodes that are on no
 * `serve`'s way. */
enum operator_following plan_following(const struct plan *plan, const struct plan_node *node);
/* The first node that keeps the job's `serve`s from being followed between checkpoints; NULL: they can be, or there are
 * none. */
const struct plan_node *plan_not_followed(const struct plan *plan);

struct plan_replace {
    struct str name;  /* name of a source or sink */
    struct str value; /* a glob or path to use instead */
};

struct plan_options {
    const struct registry *registry;
    const struct plan_replace *replays; /* sources to read from recorded files */
    uint32_t replays_count;
    const struct plan_replace *sinks; /* sinks to write to a path */
    uint32_t sinks_count;
    /* Sinks not named in `sinks` only count their rows; checkpoints go to a directory of the replay's own. */
    bool is_replay;
    /* plan_make adds what the job reads and writes, and checks all claims together. The caller may have added
     * claims before, such as the job file's. Lies in the arena. NULL: the plan is not going to run, and
     * nothing is checked. */
    struct claims *claims;
};

/* Makes the plan of an expanded job (lang_expand), in the arena; the job and the registry must outlive it.
 * NULL after diagnostics; reports all errors it finds. */
struct plan *plan_make(const struct job_file *job, const struct plan_options *options, struct arena *arena,
                       struct diag_list *diags);

/* Schema of dead letters. place: the partition's name. topic, partition, offset: null where the source has
 * none. time: arrival time. key, headers (JSON, [["name","value"]]), raw: of the record, where they are
 * known; bytes that are not UTF-8 are `?`, and then key_bytes and raw_bytes have the original bytes. */
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

/* Append the plan to `out`: as text, as Graphviz dot, as SVG. */
void plan_explain(const struct plan *plan, struct byte_buffer *out);
void plan_dot(const struct plan *plan, struct byte_buffer *out);
void plan_svg(const struct plan *plan, struct byte_buffer *out);
/* Append how far the watermark of each node stays behind the newest event, and because of which nodes: as
 * text, as SVG. */
void plan_explain_time(const struct plan *plan, struct byte_buffer *out);
void plan_time_svg(const struct plan *plan, struct byte_buffer *out);
/* Appends, for each column of each stream, the source columns and labels from which its values derive, as
 * text. */
void plan_explain_lineage(const struct plan *plan, struct byte_buffer *out);
/* Appends, for each `serve`, the way of a request to its answer, and the columns of both, as text. */
void plan_explain_serve(const struct plan *plan, struct byte_buffer *out);
/* Appends what the job reads besides its records, with sizes and digests, as text; reads the files. */
void plan_explain_inputs(const struct plan *plan, struct byte_buffer *out);

/* inputs.c. plan->inputs with the sizes and digests that files have now, in the arena: reads each file once. A file
 * that cannot be read has `error`, and no digest. Any thread. */
struct plan_input *plan_inputs_measured(const struct plan *plan, struct arena *arena);
/* "library", "file", "value". */
const char *plan_input_kind(enum plan_input_tag tag);

#endif
