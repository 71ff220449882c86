/*
 * JSON lines to columns, compared with simdjson On-Demand alone on the same bytes, in one run on one core.
 *
 *     json_bench [--json] [--nexmark | FILE.jsonl]
 *     json_bench --write FILE LINES      writes the generated lines, for other benchmarks
 *
 * Without a file: generated lines of 123 bytes with 8 fields, then lines like those of the learners' file
 * (239 bytes, 18 fields). --nexmark: events of `leat generate nexmark`, of three kinds, with the columns of
 * query q0. Each figure is the median of 5 passes by this thread's CPU clock, passes of the peer and of leat
 * in turns. An untimed pass compares the sum of all columns with the peer's. The peer reads fields in the
 * order of the record (find_field) and checks only what it reads; leat checks every byte.
 */
#include "bench/json/json_peer.h"
#include "connectors/generator/nexmark_write.h"
#include "formats/formats.h"

#include "core/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PASSES = 5, FIELDS_MAX = 32 };

struct bench {
    const char *name;
    char *data;
    size_t bytes, count;
    struct raw_record *records;
    struct schema schema;
    struct field fields[FIELDS_MAX];
    struct peer_field peers[FIELDS_MAX];
    const char *kind; /* if not NULL: only records whose first field is `kind` are read completely */
};

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values)
{
    qsort(values, PASSES, sizeof(*values), compare_doubles);
    return values[PASSES / 2];
}

static void add_field(struct bench *bench, const char *name, enum type_tag tag)
{
    bench->peers[bench->schema.count] = (struct peer_field){name, tag == TYPE_FLOAT  ? PEER_FLOAT
                                                                  : tag == TYPE_TEXT ? PEER_TEXT
                                                                                     : PEER_INT};
    bench->schema.fields = bench->fields;
    struct field *field = schema_add(&bench->schema, str_from(name), type_of(tag));
    field->type.unit = TIME_UNIT_MS;
}

/* Splits all data into lines, at most `at_once` records a call; returns the number of records. */
static size_t split_all(struct bench *bench, size_t at_once)
{
    size_t used = 0, count = 0;
    while (used < bench->bytes) {
        struct format_split split = {.data = bench->data + used,
                                     .bytes = MIN(bench->bytes - used, SOURCE_BATCH_BYTES),
                                     .max = (uint32_t)at_once,
                                     .records = bench->records + count};
        split.is_last = used + split.bytes == bench->bytes;
        format_json.split(&split);
        for (uint32_t i = 0; i < split.count; i++)
            bench->records[count + i].offset += (uint32_t)used;
        count += split.count;
        used += split.used;
    }
    return count;
}

/* CPU seconds of this thread: other programs on the machine do not count. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* The peer's checksum, computed from leat's columns. */
static uint64_t sum_batch(const struct bench *bench, const struct batch *batch)
{
    uint64_t sum = 0;
    for (uint32_t c = 0; c < bench->schema.count; c++)
        for (uint32_t i = 0; i < batch->rows; i++) {
            const struct column *column = &batch->columns[c];
            enum type_tag tag = bench->schema.fields[c].type.tag;
            if (c > 0 && bench->kind != NULL && !str_is(column_text(&batch->columns[0], i), bench->kind))
                continue;
            if (tag == TYPE_FLOAT)
                sum += (uint64_t)(int64_t)(column->floats[i] * 1000);
            else if (tag == TYPE_TEXT)
                sum += column->texts[i].length;
            else
                sum += (uint64_t)(tag == TYPE_TIME ? column->ints[i] / 1000 : column->ints[i]);
        }
    return sum;
}

/* One pass of the decoder over all records. sum: set in the untimed pass, else NULL. */
static void decode_all(struct bench *bench, struct batch_pool *pool, void *decoder, uint64_t *sum)
{
    for (size_t at = 0; at < bench->count; at += BATCH_ROWS) {
        uint32_t count = (uint32_t)MIN(bench->count - at, BATCH_ROWS);
        struct raw_record records[BATCH_ROWS];
        uint32_t base = bench->records[at].offset;
        for (uint32_t i = 0; i < count; i++)
            records[i] =
                (struct raw_record){bench->records[at + i].offset - base, bench->records[at + i].length};
        /* As from a source: only the bytes of this batch, in memory that is still in the cache. */
        static char bytes[SOURCE_BATCH_BYTES + RAW_PADDING];
        struct raw_batch raw = {.data = bytes, .records = records, .count = count};
        raw.data_bytes = records[count - 1].offset + records[count - 1].length + 1;
        memcpy(bytes, bench->data + base, raw.data_bytes);
        struct batch *batch = batch_new(pool, &bench->schema, count);
        memset(batch->event_time, 0, count * sizeof(int64_t));
        struct decode_output output = {.batch = batch};
        output.bad = arena_alloc(&batch->arena, count * sizeof(*output.bad));
        format_json.decode(decoder, &raw, &output);
        if (output.bad_count > 0) {
            fprintf(stderr, "json_bench: record %zu: %s\n", at + output.bad[0].row, output.bad[0].reason);
            exit(1);
        }
        if (sum != NULL)
            *sum += sum_batch(bench, batch);
        batch_release(batch);
    }
}

struct figures {
    double split, peer, decode; /* seconds a pass */
};

static uint64_t read_by_peer(struct bench *bench)
{
    const struct peer_record *records = (const struct peer_record *)bench->records;
    if (bench->kind == NULL)
        return peer_read(bench->data, records, bench->count, bench->peers, bench->schema.count);
    return peer_read_kind(bench->data, records, bench->count, bench->peers, bench->schema.count, bench->kind);
}

static struct figures measure(struct bench *bench)
{
    struct batch_pool *pool = batch_pool_new();
    void *decoder = format_json.decoder_new(&bench->schema, NULL);
    double split[PASSES], peer[PASSES], decode[PASSES];
    uint64_t wanted = 0, sum = 1;
    bench->count = split_all(bench, BATCH_ROWS);
    decode_all(bench, pool, decoder, &sum);
    for (int pass = 0; pass < PASSES; pass++) {
        double begin = now();
        split_all(bench, BATCH_ROWS);
        split[pass] = now() - begin;
        begin = now();
        wanted = read_by_peer(bench);
        peer[pass] = now() - begin;
        begin = now();
        decode_all(bench, pool, decoder, NULL);
        decode[pass] = now() - begin;
    }
    format_json.decoder_free(decoder);
    batch_pool_free(pool);
    if (wanted != sum) {
        fprintf(stderr, "json_bench: leat's columns sum up to %llu, simdjson's to %llu\n",
                (unsigned long long)sum, (unsigned long long)wanted);
        exit(1);
    }
    return (struct figures){median(split), median(peer), median(decode)};
}

static void run(struct bench *bench, bool is_json)
{
    bench->records = malloc((bench->bytes / 8 + 1) * sizeof(*bench->records));
    leat_assert(bench->records != NULL);
    struct figures f = measure(bench);
    double count = (double)bench->count, bytes = (double)bench->bytes / count;
    if (is_json) {
        printf("{\"name\": \"%s\", \"lines\": %zu, \"bytes\": %.1f, \"fields\": %u, \"peer\": \"%s\", "
               "\"peer_per_s\": %.0f, \"leat_per_s\": %.0f, \"split_per_s\": %.0f}\n",
               bench->name, bench->count, bytes, bench->schema.count, peer_implementation(), count / f.peer,
               count / f.decode, count / f.split);
    } else {
        printf("%-22s %zu lines of %.0f B, %u fields\n", bench->name, bench->count, bytes,
               bench->schema.count);
        printf("  simdjson On-Demand (%s)  %6.2f M lines/s  %6.1f ns\n", peer_implementation(),
               count / f.peer / 1e6, f.peer / count * 1e9);
        printf("  leat, to columns           %6.2f M lines/s  %6.1f ns   ratio %.2f\n",
               count / f.decode / 1e6, f.decode / count * 1e9, f.peer / f.decode);
        printf("  leat, cutting lines        %6.2f M lines/s  %6.1f ns   %.1f %% of decoding\n",
               count / f.split / 1e6, f.split / count * 1e9, 100 * f.split / f.decode);
    }
    free(bench->records);
    free(bench->data);
}

/* A cheap pseudo-random sequence, the same in each run. */
static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void make_events(struct bench *bench, size_t lines)
{
    struct byte_buffer out = {0};
    uint64_t state = 88172645463325252;
    for (size_t i = 0; i < lines; i++) {
        static const char *const devices[] = {"ios", "android", "web", "tv"};
        buffer_printf(
            &out,
            "{\"ts\":%llu,\"user_id\":%llu,\"item_id\":%llu,\"device\":\"%s\",\"position\":%llu,"
            "\"price\":%llu.%02llu,\"country\":\"%c%c\",\"click\":%llu}\n",
            1700000000000ULL + i * 37, (unsigned long long)(1000000 + random_next(&state) % 9000000),
            (unsigned long long)(10000 + random_next(&state) % 90000), devices[random_next(&state) % 4],
            (unsigned long long)(random_next(&state) % 100), (unsigned long long)(random_next(&state) % 100),
            (unsigned long long)(random_next(&state) % 100), (int)('a' + random_next(&state) % 26),
            (int)('a' + random_next(&state) % 26), (unsigned long long)(random_next(&state) % 2));
    }
    bench->bytes = out.length;
    buffer_reserve(&out, RAW_PADDING);
    bench->data = out.data;
    add_field(bench, "ts", TYPE_TIME);
    add_field(bench, "user_id", TYPE_INT);
    add_field(bench, "item_id", TYPE_INT);
    add_field(bench, "device", TYPE_TEXT);
    add_field(bench, "position", TYPE_INT);
    add_field(bench, "price", TYPE_FLOAT);
    add_field(bench, "country", TYPE_TEXT);
    add_field(bench, "click", TYPE_INT);
}

static void ctr_fields(struct bench *bench)
{
    add_field(bench, "ts", TYPE_TIME);
    add_field(bench, "user", TYPE_INT);
    add_field(bench, "item", TYPE_INT);
    static const char *const texts[] = {"adv", "cat", "site", "slot", "dev", "os", "br"};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        add_field(bench, texts[i], TYPE_TEXT);
    add_field(bench, "city", TYPE_INT);
    add_field(bench, "query", TYPE_TEXT);
    add_field(bench, "hour", TYPE_INT);
    static const char *const floats[] = {"price", "age", "pos", "score"};
    for (size_t i = 0; i < ARRAY_COUNT(floats); i++)
        add_field(bench, floats[i], TYPE_FLOAT);
    add_field(bench, "clicked", TYPE_INT);
}

static void make_ctr(struct bench *bench, size_t lines)
{
    struct byte_buffer out = {0};
    uint64_t state = 362436069;
#define DRAW(n) (unsigned)(random_next(&state) % (n))
    for (size_t i = 0; i < lines; i++) {
        buffer_printf(&out,
                      "{\"ts\":%llu,\"user\":%u,\"item\":%u,\"adv\":\"a%u\",\"cat\":\"c%u\",\"site\":\"s%u\","
                      "\"slot\":\"p%u\",\"dev\":\"d%u\",\"os\":\"o%u\",\"br\":\"b%u\",\"city\":%u,"
                      "\"query\":\"q%u\",\"hour\":%u,",
                      1700000000000ULL + i * 500, DRAW(200000), DRAW(50000), DRAW(2000), DRAW(50),
                      DRAW(20000), DRAW(500), DRAW(2000), DRAW(5), DRAW(40), DRAW(5000), DRAW(1000000),
                      DRAW(24));
        buffer_printf(
            &out, "\"price\":%s%u.%03u,\"age\":%u.%03u,\"pos\":0.%03u,\"score\":0.%03u,\"clicked\":%u}\n",
            DRAW(2) ? "-" : "", DRAW(3), DRAW(1000), DRAW(3), DRAW(1000), DRAW(1000), DRAW(1000), DRAW(2));
    }
    bench->bytes = out.length;
    buffer_reserve(&out, RAW_PADDING);
    bench->data = out.data;
    ctr_fields(bench);
}

static void make_nexmark(struct bench *bench, int64_t lines)
{
    struct byte_buffer out = {0};
    const struct nexmark_options options = {
        .seed = 1, .rate = 10000, .person_bytes = 200, .auction_bytes = 500, .bid_bytes = 100};
    struct nexmark_event event;
    for (int64_t i = 0; i < lines; i++) {
        char *at = buffer_reserve(&out, NEXMARK_LINE_BYTES);
        nexmark_make(&options, i, &event);
        out.length += (size_t)(nexmark_line(&event, at) - at);
    }
    bench->bytes = out.length;
    buffer_reserve(&out, RAW_PADDING);
    bench->data = out.data;
    bench->kind = "bid";
    add_field(bench, "type", TYPE_TEXT);
    static const char *const ints[] = {"auction", "bidder", "price"};
    for (size_t i = 0; i < ARRAY_COUNT(ints); i++)
        add_field(bench, ints[i], TYPE_INT);
    add_field(bench, "date_time", TYPE_TIME);
    add_field(bench, "extra", TYPE_TEXT);
}

static int write_events(const char *path, const char *lines)
{
    struct bench events = {.name = "events"};
    make_events(&events, strtoull(lines, NULL, 10));
    FILE *file = fopen(path, "wb");
    bool is_good = file != NULL && fwrite(events.data, 1, events.bytes, file) == events.bytes;
    is_good &= file == NULL || fclose(file) == 0;
    if (!is_good)
        fprintf(stderr, "json_bench: cannot write %s\n", path);
    free(events.data);
    return is_good ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct bench file = {.name = "file"}, events = {.name = "events"}, ctr = {.name = "ctr"};
    struct bench nexmark = {.name = "nexmark"};
    if (argc == 4 && strcmp(argv[1], "--write") == 0)
        return write_events(argv[2], argv[3]);
    bool is_json = argc > 1 && strcmp(argv[1], "--json") == 0;
    if (argc == 2 + is_json && strcmp(argv[1 + is_json], "--nexmark") == 0) {
        make_nexmark(&nexmark, 250000);
        run(&nexmark, is_json);
        return 0;
    }
    const char *path = argc > 1 + is_json ? argv[1 + is_json] : NULL;
    if (path != NULL) {
        if (os_read_file(path, (size_t)2 << 30, &file.data, &file.bytes) != 0) {
            fprintf(stderr, "json_bench: cannot read %s\n", path);
            return 1;
        }
        file.data = realloc(file.data, file.bytes + RAW_PADDING);
        ctr_fields(&file);
        run(&file, is_json);
        return 0;
    }
    make_events(&events, 500000);
    run(&events, is_json);
    make_ctr(&ctr, 250000);
    run(&ctr, is_json);
    return 0;
}
