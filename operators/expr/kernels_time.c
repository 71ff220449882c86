/* Functions of times, in UTC. */
#include "operators/expr/loops.h"

#include "core/civil.h"

static inline int64_t floor_divide(int64_t x, int64_t by)
{
    return x / by - (x % by < 0);
}

static inline int64_t floor_modulo(int64_t x, int64_t by)
{
    int64_t rest = x % by;
    return rest < 0 ? rest + by : rest;
}

LOOP_UNARY(kernel_hour_of_day, int64_t, int64_t, floor_modulo(x, US_PER_DAY) / US_PER_HOUR)
LOOP_UNARY(kernel_minute, int64_t, int64_t, floor_modulo(x, US_PER_HOUR) / US_PER_MINUTE)
LOOP_UNARY(kernel_second, int64_t, int64_t, floor_modulo(x, US_PER_MINUTE) / US_PER_SECOND)
/* 1970-01-01 was a Thursday. */
LOOP_UNARY(kernel_day_of_week, int64_t, int64_t, floor_modulo(floor_divide(x, US_PER_DAY) + 3, 7) + 1)
LOOP_UNARY(kernel_epoch_s, int64_t, int64_t, floor_divide(x, US_PER_SECOND))
LOOP_UNARY(kernel_epoch_ms, int64_t, int64_t, floor_divide(x, 1000))
LOOP_UNARY(kernel_day_of_month, int64_t, int64_t, civil_from(x).day)
LOOP_UNARY(kernel_month, int64_t, int64_t, civil_from(x).month)
LOOP_UNARY(kernel_year, int64_t, int64_t, civil_from(x).year)

/* --- Units --- */

enum { UNIT_MONTH = -1, UNIT_QUARTER = -2, UNIT_YEAR = -3, UNIT_WEEK = -4 };

struct unit {
    const char *name;
    int64_t us; /* microseconds, or UNIT_... */
};

static const struct unit trunc_units[] = {
    {"second", US_PER_SECOND}, {"minute", US_PER_MINUTE}, {"hour", US_PER_HOUR},     {"day", US_PER_DAY},
    {"week", UNIT_WEEK},       {"month", UNIT_MONTH},     {"quarter", UNIT_QUARTER}, {"year", UNIT_YEAR},
};
static const struct unit epoch_units[] = {{"s", US_PER_SECOND}, {"ms", 1000}, {"us", 1}, {"ns", TIME_NS}};

/* Finds the unit. aux: its microseconds, UNIT_... or scale (core/base.h). */
static bool prepare_unit(struct expr_compiler *c, struct expr_node *node, uint32_t argument,
                         const struct unit *units, size_t count)
{
    struct str name = column_text(expr_constant_arg(node, argument), 0);
    const char *all = units[0].name;
    for (size_t i = 0; i < count; i++) {
        if (str_is(name, units[i].name)) {
            node->aux = &units[i].us;
            return true;
        }
        if (i > 0)
            all = arena_printf(c->arena, "%s, %s", all, units[i].name);
    }
    struct diag *d = diag_error(c->diags, DIAG_BAD_ARGUMENTS, node->args[argument]->ast->span,
                                "`%.*s` is not a unit of time here", STR_ARGS(name));
    diag_hint(c->diags, d, "choose one of %s", all);
    return false;
}

bool prepare_time_unit(struct expr_compiler *c, struct expr_node *node)
{
    return prepare_unit(c, node, 1, epoch_units, ARRAY_COUNT(epoch_units));
}

bool prepare_date_trunc(struct expr_compiler *c, struct expr_node *node)
{
    return prepare_unit(c, node, 0, trunc_units, ARRAY_COUNT(trunc_units));
}

/* Days from the first day of the month, quarter or year to the day of x. */
static int64_t days_into(int64_t x, int64_t unit)
{
    struct civil date = civil_from(x);
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    bool is_leap = date.year % 4 == 0 && (date.year % 100 != 0 || date.year % 400 == 0);
    int first = unit == UNIT_YEAR ? 1 : unit == UNIT_QUARTER ? (date.month - 1) / 3 * 3 + 1 : date.month;
    int days = before[date.month - 1] - before[first - 1] + date.day - 1;
    return days + (is_leap && date.month > 2 && first <= 2);
}

void kernel_date_trunc(struct expr_call *call)
{
    int64_t unit = *(const int64_t *)call->node->aux;
    const struct expr_vec *a = &call->args[1];
    for (uint32_t i = 0; i < call->rows.count; i++) {
        uint32_t row = rows_at(&call->rows, i);
        int64_t x = a->column.ints[row & a->mask], back;
        if (unit > 0)
            back = floor_modulo(x, unit);
        else if (unit == UNIT_WEEK)
            back =
                floor_modulo(x, US_PER_DAY) + floor_modulo(floor_divide(x, US_PER_DAY) + 3, 7) * US_PER_DAY;
        else
            back = floor_modulo(x, US_PER_DAY) + days_into(x, unit) * US_PER_DAY;
        if (likely(!__builtin_sub_overflow(x, back, &call->out->column.ints[row])))
            continue;
        call->out->column.ints[row] = 0;
        if (vec_is_valid(call->out, row))
            call_fail(call, row);
    }
}

/* --- Formatting --- */

bool prepare_time_format(struct expr_compiler *c, struct expr_node *node)
{
    struct str pattern = column_text(expr_constant_arg(node, 1), 0);
    for (size_t i = 0; i < pattern.length; i++) {
        if (pattern.data[i] != '%')
            continue;
        i++;
        if (i < pattern.length && strchr("YmdHMSfju%", pattern.data[i]) != NULL)
            continue;
        struct diag *d = diag_error(c->diags, DIAG_BAD_ARGUMENTS, node->args[1]->ast->span,
                                    "byte %zu of the pattern begins no field that exists", i);
        diag_hint(c->diags, d, "the fields are %%Y %%m %%d %%H %%M %%S %%f %%j %%u and %%%%");
        return false;
    }
    return true;
}

static size_t format_field(char field, const struct civil *date, int64_t x, char out[32])
{
    switch (field) {
    case 'Y': return (size_t)snprintf(out, 32, "%04lld", (long long)date->year);
    case 'm': return (size_t)snprintf(out, 32, "%02d", date->month);
    case 'd': return (size_t)snprintf(out, 32, "%02d", date->day);
    case 'H': return (size_t)snprintf(out, 32, "%02d", date->hour);
    case 'M': return (size_t)snprintf(out, 32, "%02d", date->minute);
    case 'S': return (size_t)snprintf(out, 32, "%02d", date->second);
    case 'f': return (size_t)snprintf(out, 32, "%06d", date->microsecond);
    case 'j': return (size_t)snprintf(out, 32, "%03d", (int)days_into(x, UNIT_YEAR) + 1);
    case 'u': return (size_t)snprintf(out, 32, "%d", date->weekday);
    default: out[0] = '%'; return 1;
    }
}

void kernel_time_format(struct expr_call *call)
{
    struct expr_writer writer;
    struct str pattern = column_text(expr_constant_arg(call->node, 1), 0);
    writer_init(&writer, call, (size_t)call->live_count * (pattern.length + 8));
    for (uint32_t i = 0; i < call->live_count; i++) {
        uint32_t row = call->live[i];
        int64_t x = call->args[0].column.ints[row & call->args[0].mask];
        struct civil date = civil_from(x);
        for (size_t k = 0; k < pattern.length; k++) {
            char field[32];
            if (pattern.data[k] == '%')
                writer_append(&writer, field, format_field(pattern.data[++k], &date, x, field));
            else
                writer_append(&writer, &pattern.data[k], 1);
        }
        writer_end(&writer, row);
    }
    writer_finish(&writer);
}
