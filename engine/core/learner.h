/* Learners are operators (core/operator.h) whose single instance sees all rows in order of row_order
 * (DETERMINISM_BY_ALL_ROWS). Input 0 has the examples. Input 1, if the option `score` names a stream, has rows
 * without a label, which are predicted by the weights that all rows before them have left, and not learned. The last
 * input, if the option `items` of a kind names a stream, has the items that the learner chooses from; or, if the option
 * `unlabelled` does, events that are learned and not predicted.
 *
 * outputs[0], `NAME.predictions`: the input's own columns (without columns added for expressions) and
 * `prediction: float` (with several labels: `prediction_LABEL` for each); one row per example, predicted by
 * the weights before they learn the example. outputs[1]: `NAME.metrics`. outputs[2], `NAME.scores`: likewise of
 * the rows of input 1.
 *
 * Counters: in = learned + unlabelled + sampled_out + weightless + frozen + rejected + scored. Learned and unlabelled rows
 * count as `absorbed`; rows sampled out, without weight, frozen or scored (predicted, not learned) as `filtered`; rejected
 * rows, of both inputs, as `dead` (they do not go to dead letters); predictions and scores as `emitted`.
 *
 * A learner's option table has expressions (`label`, `sparse`, `dense` ...). Its `bind` makes each
 * expression a column of an input with bind->add_column, which returns the column's index, or -1 after a
 * diagnostic; for an existing column it returns that column's index. bind->inputs[input].schema then has all
 * these columns. `bind` fills bind->learner, and the plan refuses features that derive from a label
 * (docs/design.md, section 1, promise 3). */
#ifndef LEAT_CORE_LEARNER_H
#define LEAT_CORE_LEARNER_H

#include "core/operator.h"

enum { LEARNER_FEATURES_MAX = 256, LEARNER_LABELS_MAX = 8 };
enum { LEARNER_EXAMPLES, LEARNER_SCORED, LEARNER_INPUTS = 3 }; /* inputs; most of them */
enum { LEARNER_PREDICTIONS, LEARNER_METRICS, LEARNER_SCORES }; /* outputs */

/* Report item of a learner under `leat run --compare cpu`: the number of steps after which GPU
 * and CPU agreed. */
#define LEARNER_COMPARED "compared_steps"

struct learner_columns {
    int labels[LEARNER_LABELS_MAX]; /* column indices of input 0 */
    struct span label_spans[LEARNER_LABELS_MAX];
    uint32_t labels_count;
    const char *label_name;             /* in messages, static; NULL: "the label" */
    uint32_t count;                     /* of features */
    int features[LEARNER_FEATURES_MAX]; /* column indices of input 0 */
    int scored[LEARNER_FEATURES_MAX];   /* likewise of input 1, if there is one */
    struct span scored_span;            /* of the name of the stream that is input 1 */
    /* The inputs that have a catalogue of items, and events that are not predicted; either may be 1. 0: there is none. */
    uint32_t items_input, unlabelled_input;
    struct span spans[LEARNER_FEATURES_MAX]; /* of each feature in the job, for messages */
    /* `known_early: [...]`: columns that the label is computed from and that are known when serving. */
    struct columns known;
};

/* Visits the contents of a model, for `leat model`: first all dense parameters, then table by table the
 * embedding rows by rising key. A callback returns false to stop. Pointers are valid during the call only. */
struct model_visitor {
    void *argument;
    /* A dense parameter: float32, row-major; a vector has one row. */
    bool (*tensor)(void *argument, const char *name, const float *data, size_t rows, size_t columns);
    /* A table begins. name: of its field (the column); dim: floats per embedding row; rows:
     * number of rows. */
    bool (*table)(void *argument, const char *name, size_t dim, uint64_t rows);
    /* An embedding row: weights (without optimizer state), count of occurrences, event time of
     * the last occurrence. */
    bool (*row)(void *argument, uint64_t key, const float *weights, uint64_t count, int64_t seen_us);
};

#endif
