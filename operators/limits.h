/* Limits of single operators that jobs can meet; `leat help limits` shows them (engine/cli/limits.def). */
#ifndef LEAT_OPERATORS_LIMITS_H
#define LEAT_OPERATORS_LIMITS_H

#include "core/operator.h"

enum {
    CLEAN_COLUMNS_MAX = 40,
    CLEAN_RULES_MAX = 12, /* per column */
    CROSS_COLUMNS_MAX = 16,
    FEATURE_WINDOWS_MAX = 8,
    FEATURE_PANES_MAX = 1 << 20, /* per window: over / every */
    FILL_COLUMNS_MAX = 64,
    FILL_VALUE_BYTES_MAX = 64 << 10,
    PATTERN_KEPT_COLUMNS_MAX = 16,
    ROUTE_OUTPUTS_MAX = OPERATOR_OUTPUTS_MAX - 1, /* one output is `rest` */
};

#endif
