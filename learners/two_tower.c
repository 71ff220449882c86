/* Two towers (Covington et al. 2016; Yi et al. 2019): what is known of an event, and items with their features, become
 * vectors whose product says what comes next; items that nobody has met yet have a vector, too. */
#include "learners/learner/optimizer_options.h"
#include "learners/losses/options.h"
#include "learners/towers/learner.h"

struct two_tower {
    struct towers_config common;
};
_Static_assert(offsetof(struct two_tower, common) == 0, "the shared callbacks read the first member");

static const struct option two_tower_options[] = {
    OPTION_EXPRESSIONS(
        struct towers_config, query, "query", OPTION_REQUIRED,
        "what is known of the event before its item: up to 16 single values, or lists whose mean "
        "is read"),
    OPTION_INCLUDE_ROWS(towers_options_of),
    OPTION_INCLUDE_ROWS(towers_refresh_option),
    OPTION_STREAM(
        struct towers_config, items, "items", 0,
        "stream of the items that there are: a row adds an item or replaces its features, and "
        "removes it if `_op` is \"delete\". It has the columns that `item` and `item_features` read. "
        "With it, events bring no items"),
    OPTION_EXPRESSIONS(
        struct towers_config, features, "item_features", 0,
        "what is known of items, from `items`, or else from the events: up to 16 single values "
        "or lists whose mean is read"),
    OPTION_INTS(
        struct towers_config, towers, "towers", 0, "[128, 64]", "4", "4096",
        "widths of the layers of each tower; the last is linear, and its width, at most 256, is that of "
        "the index. []: vectors are added up, without layers"),
    OPTION_BOOL(struct towers_config, normalize, "normalize", "true",
                "both vectors get length 1, so that scores are cosines; choose a `temperature` of about 0.1"),
    OPTION_INT(struct towers_config, list_max, "list_max", 0, "32", "1", "256",
               "how many ids of a list are read, from its beginning"),
    OPTION_FLOAT(struct towers_config, clip_norm, "clip_norm", 0, "0.0", "0.0", NULL,
                 "largest norm of a step's gradient by the weights of a tower's layers; 0: no limit"),
    OPTION_KIND(struct towers_config, hidden_optimizer, "hidden_optimizer", 0, "adam { rate: 0.001 }",
                optimizer_kinds, "optimizer of the layers"),
    OPTION_KIND(struct towers_config, loss, "loss", 0,
                "sampled_softmax { negatives: 64, in_batch: true, temperature: 0.1 }", losses_choices,
                "what is minimized: the item that came against other items; not `softmax`"),
    OPTION_INT(struct towers_config, batch, "batch", 0, "512", "1", "1023", "events of a step"),
    OPTIONS_END,
};

extern const struct operator_kind learner_two_tower;
const struct operator_kind learner_two_tower = {
    .name = "two_tower",
    .summary = "queries and items as vectors, for the best of a million items",
    .example =
        "learner m = two_tower from events { query: [user_id, device], item: item_id, batch: 64, top: 10 }",
    .details =
        "One network makes a vector of what is known of an event, another one of an item and its features; the "
        "score is their product, and an index finds the best items. An item's row in the index is what its "
        "tower gave when it was last encoded: after each step that it was part of, and in turn. There is one "
        "kind of index, exact with bytes, so there is no option for it.",
    TOWERS_KIND(struct two_tower, two_tower_options, towers_bind),
};
