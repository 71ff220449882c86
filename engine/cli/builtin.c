/* The built-in kinds: operators as CMake finds them, the others from the registry.def of each folder. */
#include "cli/commands.h"
#include "operators/expr/expr.h"
#include "operators/user/user.h"

#define OPERATOR(name) extern const struct operator_kind operator_##name;
#include "generated/operators.def"
#undef OPERATOR
#define LEARNER(name) extern const struct operator_kind learner_##name;
#include "learners/registry.def"
#undef LEARNER
#define SOURCE(name) extern const struct source_kind source_##name;
#define SINK(name)   extern const struct sink_kind sink_##name;
#include "connectors/registry.def"
#undef SOURCE
#undef SINK
#define FORMAT(name) extern const struct format_kind format_##name;
#include "formats/registry.def"
#undef FORMAT

static const struct operator_kind *const operators[] = {
#define OPERATOR(name) &operator_##name,
#include "generated/operators.def"
#undef OPERATOR
    NULL,
};

static const struct operator_kind *const learners[] = {
#define LEARNER(name) &learner_##name,
#include "learners/registry.def"
#undef LEARNER
    NULL,
};

#define SINK(name)
static const struct source_kind *const sources[] = {
#define SOURCE(name) &source_##name,
#include "connectors/registry.def"
#undef SOURCE
    NULL,
};
#undef SINK

#define SOURCE(name)
static const struct sink_kind *const sinks[] = {
#define SINK(name) &sink_##name,
#include "connectors/registry.def"
#undef SINK
    NULL,
};
#undef SOURCE

static const struct format_kind *const formats[] = {
#define FORMAT(name) &format_##name,
#include "formats/registry.def"
#undef FORMAT
    NULL,
};

extern const struct line_log_kind line_log_kafka;

const struct registry builtin_registry = {
    .operators = operators,
    .learners = learners,
    .sources = sources,
    .sinks = sinks,
    .formats = formats,
    .functions = expr_functions,
    .conditions = &expr_conditions,
    .line_log = &line_log_kafka,
    .use = user_use,
    .libraries = {"", 0},
};
