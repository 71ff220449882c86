/* What the files of plan share while a plan is made; private to this folder. */
#ifndef LEAT_PLAN_BUILD_H
#define LEAT_PLAN_BUILD_H

#include "core/connector.h"
#include "plan/plan.h"

enum symbol_tag { SYMBOL_SOURCE, SYMBOL_STREAM, SYMBOL_LEARNER };
/* SYMBOL_OPEN: its nodes are being built; a reference to it now is a circle. SYMBOL_BROKEN: an error was
 * reported. */
enum symbol_state { SYMBOL_NEW, SYMBOL_OPEN, SYMBOL_DONE, SYMBOL_BROKEN };

/* A name to which a stream_ref can refer. */
struct symbol {
    struct str name;
    struct span span;
    enum symbol_tag tag;
    enum symbol_state state;
    uint32_t index;  /* index of the declaration among those of its tag */
    uint32_t node;   /* when SYMBOL_DONE: place of the node whose outputs the name stands for */
    uint32_t output; /* which output of that node: not 0 for `stream a = b.late` without steps */
    bool is_used;
};

struct plan_build {
    struct plan *plan;
    const struct job_file *job;
    const struct plan_options *options;
    struct arena *arena;
    struct diag_list *diags;
    struct option_env env;
    struct symbol *symbols;
    uint32_t symbols_count;
    uint32_t roots; /* number of lineage bits given out so far */
};

/* Stands for `dead_letters` in a plan_edge. */
enum { PLAN_NODE_DEAD = UINT32_MAX };

/* Appends a node; NULL after a diagnostic, if there are too many. */
struct plan_node *build_node(struct plan_build *b, enum plan_node_tag tag, struct str name, const char *kind,
                             struct span span);
/* Parses `clicks` or `hourly.late`, as options keep it. */
struct stream_ref build_stream_ref(struct str name, struct span span);
/* The node and output to which a reference leads. false after a diagnostic (an earlier one, if the target
 * is broken). */
bool build_resolve(struct plan_build *b, const struct stream_ref *ref, struct plan_edge *edge);
const struct schema *build_schema(const struct plan_build *b, struct plan_edge edge);
/* Canonical text of entries, in the order of the option table. for_fingerprint: leaves out options that do
 * not reach state (OPTION_RUNTIME). */
struct str build_settings(struct plan_build *b, const struct option *table, const struct ast_entry *entries,
                          uint32_t count, bool for_fingerprint);

/* source_time.c: checks event time, watermark, jumps and alignment of a source against its schema. false
 * after diagnostics. */
bool build_source_time(struct plan_build *b, struct plan_node *node, const struct ast_entry *entries,
                       uint32_t count);
/* Whether a step can get the event time, or the arrival time, that it needs; called after its bind. false
 * after a diagnostic. */
bool build_check_time(struct plan_build *b, const struct plan_node *node);
bool build_check_arrival(struct plan_build *b, const struct plan_node *node);

/* build_nodes.c: adds the streams named in the options of a step or a learner as its inputs 1, 2 ... of a draft,
 * whose kind and config are set; may add nodes before it. false after a diagnostic. */
bool build_stream_inputs(struct plan_build *b, struct plan_node *node);
/* Build the nodes of a declaration. false after diagnostics. *node: place of the source's or learner's node;
 * *edge: the output that the stream's name stands for. */
bool build_source(struct plan_build *b, const struct source_decl *decl, uint32_t *node);
bool build_stream(struct plan_build *b, const struct stream_decl *decl, struct plan_edge *edge);
bool build_learner(struct plan_build *b, const struct learner_decl *decl, uint32_t *node);
bool build_sink(struct plan_build *b, const struct sink_decl *decl);
/* Finds the way of a request through the nodes, which are all built; false after diagnostics. */
bool build_serve(struct plan_build *b, const struct serve_decl *decl);

/* serve_log.c: the rows of `log: { ... }`, for a struct plan_serve_log; they live in the arena. */
const struct option *build_log_options(const struct registry *registry, struct arena *arena);
/* Checks that the bound options name one place, and go together; sets log->kind. false after a diagnostic. */
bool build_log(struct plan_build *b, const struct serve_decl *decl, struct plan_serve_log *log);

/* claims.c: span of the value of the option that names where the node reads or writes (OPTION_READS,
 * OPTION_WRITES); `otherwise` if no such option is given. */
struct span build_place(const struct option *table, const struct ast_entry *entries, uint32_t count,
                        struct span otherwise);
/* Adds what the nodes and the checkpoints read and write to the claims, and checks all claims: none may
 * clash. false after diagnostics. */
bool build_claims(struct plan_build *b);

/* Binds an operator node whose config and edges are set; sets its schemas. false after diagnostics. */
bool build_bind(struct plan_build *b, struct plan_node *node, struct operator_bind *bind);

/* Cuts the finished node list into stages and exchanges; reports a job that needs too many. */
void build_stages(struct plan_build *b);
/* inputs.c: sets plan.inputs. */
void build_inputs(struct plan_build *b);
/* Sets plan.fingerprint. */
void build_fingerprint(struct plan_build *b);
/* parts.c. build_shape, build_sink_shape, after bind: sets what the node's state depends on. build_parts,
 * once unused nodes are pruned: names the parts. */
void build_shape(struct plan_build *b, struct plan_node *node, const struct operator_bind *bind);
void build_sink_shape(struct plan_build *b, struct plan_node *node, const struct sink_bind *bind);
void build_parts(struct plan_build *b);

#endif
