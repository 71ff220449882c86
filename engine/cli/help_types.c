/* leat help types: what values are, and the rules that hold for them everywhere. Types, units and literals
 * come from the tables by which the job language is read. Each example is an expression that is true; a test
 * evaluates them all. */
#include "cli/help.h"
#include "core/option.h"
#include "core/option_schema.h"
#include "operators/expr/letters.h"

static const struct help_fact nulls[] = {
    {"what null is",
     "A missing value. A column is nullable unless its type in the schema ends in `!`: then a record without "
     "a value is bad. In JSON null or a missing field, in CSV an empty field (`\"\"` is an empty text).",
     NULL},
    {"computing", "The result of a computation with null is null.", "(int(null) + 1) is null"},
    {"comparing", "Null equals nothing, not even null: test with `is null`.",
     "(int(null) = int(null)) is null"},
    {"and", "False if one side is false, even if the other is null.", "(bool(null) and false) = false"},
    {"or", "True if one side is true, even if the other is null.", "bool(null) or true"},
    {"conditions", "`where`, `case` and `split` treat null as not true.",
     "case when int(null) = 1 then false else true end"},
    {"instead", "coalesce gives its first argument that is not null.", "coalesce(int(null), 3) = 3"},
    {"aggregates", "Aggregates leave nulls out; count() counts all rows.", NULL},
    {"keys",
     "In `window` and `feature` null is a group of its own. In `join`, `attribute`, `enrich` and `lookup` it "
     "matches nothing, and `dedup` lets it pass: such rows are counted as null keys.",
     NULL},
    {"order", "Null comes last, with asc and desc alike.", NULL},
};

static const struct help_fact nans[] = {
    {"what NaN is", "The float result of a computation that has no number as a result.", "is_nan(0.0 / 0.0)"},
    {"comparing", "As in IEEE 754: NaN is equal to nothing and less than nothing.",
     "not (0.0 / 0.0 = 0.0 / 0.0) and not (0.0 / 0.0 < 1.0)"},
    {"infinities",
     "The infinities are numbers: plus infinity is larger than all others, minus infinity smaller.",
     "1.0 / 0.0 > 1.0e308"},
    {"zeros", "-0.0 equals 0.0, as a key too.", "-0.0 = 0.0 and hash(-0.0) = hash(0.0)"},
    {"keys, aggregates, order",
     "NaN is treated as null: one group as a key, left out of aggregates, last in order.", NULL},
    {"written", "In JSON and CSV NaN and the infinities are null; msgpack and batches keep them.", NULL},
};

static const struct help_fact numbers[] = {
    {"int and float",
     "An int becomes a float if the other operand is a float; nothing else is converted implicitly.",
     "1 + 2.5 = 3.5"},
    {"whole numbers", "Division and remainder round towards zero.", "-7 / 2 = -3 and -7 % 3 = -1"},
    {"what does not fit",
     "Overflow, division by zero and a failed conversion send the row to dead_letters; try_int and the other "
     "try_ functions give null instead.",
     "try_int(\"seventeen\") is null"},
    {"to int", "Conversion to int rounds towards zero.", "int(-1.5) = -1"},
    {"text", "Texts are compared by their bytes; length counts characters.",
     "\"Z\" < \"a\" and length(\"äö\") = 2"},
    {"joining texts", "By concat.", "concat(\"a\", \"b\") = \"ab\""},
};

static const struct help_fact times[] = {
    {"precision", "Whole microseconds; further digits are cut, nanoseconds are rounded down.",
     "to_time(-1, \"ns\") = to_time(-1, \"us\")"},
    {"zone", "None: times are UTC. at_zone(time, \"Europe/Berlin\") is the local time there.", NULL},
    {"durations",
     "Durations are ints, of microseconds: the difference of two times is a duration, and a duration can be "
     "added to a time.",
     "time(\"2024-05-06\") + 1d - time(\"2024-05-06\") = 24h"},
    {"leap seconds", "23:59:60 UTC at the end of a month is the next second, as in POSIX.",
     "time(\"2016-12-31T23:59:60Z\") = time(\"2017-01-01T00:00:00Z\")"},
    {"range", "Times of the years 1 to 9999 are written as text, times beyond as microseconds.",
     "time(\"9999-12-31\") > time(\"0001-01-01\")"},
    {"written", "Sinks write times as RFC 3339, or as a number: `times: ms`, s, us or ns.", NULL},
};

static const struct help_fact literals[] = {
    {"ints", "Digits, with or without _ between them.", "1_000_000 = 1000000"},
    {"floats", "With a point or an exponent; a point has a digit on each side.", "2.5e-1 = 0.25"},
    {"texts", "In double quotes; \\n \\t \\r \\\" \\\\ and \\u{e4} for a character by its Unicode number.",
     "\"\\u{e4}\" = \"ä\""},
    {"bools, null", "true, false, null; null alone needs a type: int(null).", "int(null) is null"},
    {"lists", "In brackets.", "contains([1, 2, 3], 2)"},
    {"fractions", "Of a duration or a size, if the result is a whole number.",
     "1.5h = 90m and 0.5KiB = 512B"},
};

static struct help_section letters_of(struct arena *arena)
{
    struct help_fact *facts = arena_array(arena, struct help_fact, 3);
    facts[0] = (struct help_fact){
        "upper, lower",
        arena_printf(
            arena,
            "By Unicode %s, which is built into leat: the result does not depend on the machine or on a "
            "language.",
            letters_unicode()),
        "upper(\"señor ω\") = \"SEÑOR Ω\" and lower(\"I\") = \"i\""};
    facts[1] = (struct help_fact){
        "one for one", "A letter stays as it is if its other case is several letters or does not exist.",
        "upper(\"straße\") = \"STRAßE\" and lower(\"STRASSE\") = \"strasse\""};
    facts[2] = (struct help_fact){"by itself", "The letters before and after a letter do not matter.",
                                  "lower(\"ΣΑΣ\") = \"σασ\" and upper(\"σας\") = \"ΣΑΣ\""};
    return (struct help_section){"upper and lower case", facts, 3};
}

#define SECTION(title, facts) ((struct help_section){title, facts, ARRAY_COUNT(facts)})

static struct help_section types_of(struct arena *arena)
{
    struct help_fact *facts = arena_array(arena, struct help_fact, 16);
    uint32_t count = 0;
    for (const struct type_help *t = option_schema_types; t->name != NULL; t++)
        facts[count++] = (struct help_fact){t->name, t->help, NULL};
    facts[count++] = (struct help_fact){"list(TYPE)", "any number of values of one type", NULL};
    facts[count++] = (struct help_fact){"list({ NAME: TYPE, ... })",
                                        "a list of records; `unnest` makes a row of each record", NULL};
    facts[count++] = (struct help_fact){"TYPE!", "in a source's schema: each record must have a value", NULL};
    return (struct help_section){"types", facts, count};
}

static struct help_section units_of(struct arena *arena)
{
    struct help_fact *facts = arena_array(arena, struct help_fact, 16);
    uint32_t count = 0;
    for (const struct type_help *t = option_schema_units; t->name != NULL; t++)
        facts[count++] = (struct help_fact){arena_printf(arena, "time(%s)", t->name), t->help, NULL};
    return (struct help_section){"times as a source writes them", facts, count};
}

/* A section with the units as literals: "1ms", "1000 microseconds". */
static struct help_section literals_of(struct arena *arena, const char *title,
                                       const struct literal_unit *units, const char *smallest)
{
    struct help_fact *facts = arena_array(arena, struct help_fact, 16);
    uint32_t count = 0;
    for (; units->name != NULL; units++)
        facts[count++] = (struct help_fact){
            .name = arena_printf(arena, "1%s", units->name),
            .text = arena_printf(arena, "%lld %s%s", (long long)units->factor, smallest,
                                 units->factor == 1 ? "" : "s"),
            .example = arena_printf(arena, "1%s = %lld", units->name, (long long)units->factor)};
    return (struct help_section){title, facts, count};
}

struct help_page help_types(struct help *help)
{
    struct arena *arena = &help->arena;
    struct help_page page = {
        .name = "types",
        .summary = "what values are: nulls and NaN, numbers, times and durations, literals",
        .intro =
            "The rules hold in every step, function and sink. Each line after `true:` is an expression of "
            "the job language."};
    page.sections[page.count++] = types_of(arena);
    page.sections[page.count++] = units_of(arena);
    page.sections[page.count++] = SECTION("nulls", nulls);
    page.sections[page.count++] = SECTION("NaN and the infinities", nans);
    page.sections[page.count++] = SECTION("numbers and texts", numbers);
    page.sections[page.count++] = letters_of(arena);
    page.sections[page.count++] = SECTION("times and durations", times);
    page.sections[page.count++] = SECTION("literals", literals);
    page.sections[page.count++] = literals_of(arena, "durations", literal_duration_units, "microsecond");
    page.sections[page.count++] = literals_of(arena, "sizes", literal_byte_units, "byte");
    return page;
}
