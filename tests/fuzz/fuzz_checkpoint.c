/* Arbitrary bytes as parts of a checkpoint. The first byte chooses the part:
 * - a MANIFEST or a GENERATION with a right digest: decoding must not crash, and a manifest that decodes is
 *   the same after encoding and decoding again;
 * - state.bin with right digests and pieces: the reader, and the restore of keyed tables and time queues,
 *   must not crash, whatever the records are;
 * - a row that is held in state: decoding into columns must not crash, and a row that decodes encodes to the
 *   same bytes;
 * - a segment of the order log with a right length and digest: reading must not crash, and a good segment has
 *   the micro-batches that its head says. */
#include "core/order_log.h"
#include "core/os.h"
#include "fuzz.h"
#include "operators/rows/codec.h"
#include "state/checkpoint_files.h"
#include "state/state.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);

enum { SEAL_BYTES = 16, LANES = 3 };

static char root[256];

static void remove_root(void)
{
    (void)os_remove_tree(root);
}

static void make_root(void)
{
    if (root[0] != '\0')
        return;
    snprintf(root, sizeof(root), "%s/leat-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    must(mkdtemp(root) != NULL, "a temporary directory");
    atexit(remove_root);
}

/* A copy of the bytes with a right digest at its end, malloc'd. */
static char *sealed(const uint8_t *data, size_t size, size_t *length)
{
    *length = size + SEAL_BYTES;
    char *text = malloc(*length);
    must(text != NULL, "memory");
    if (size > 0)
        memcpy(text, data, size);
    manifest_seal(text, *length);
    return text;
}

static void fuzz_manifest(const uint8_t *data, size_t size)
{
    size_t length;
    char *text = sealed(data, size, &length);
    struct arena arena = {0};
    struct manifest manifest, again;
    const char *why = NULL;
    if (manifest_decode((struct str){text, length}, &arena, &manifest, &why) == DECODE_GOOD) {
        struct byte_buffer out = {0};
        manifest_encode(&manifest, &out);
        must(manifest_decode((struct str){out.data, out.length}, &arena, &again, &why) == DECODE_GOOD,
             "an encoded manifest decodes");
        must(again.files_count == manifest.files_count && again.parts_count == manifest.parts_count &&
                 again.pieces_count == manifest.pieces_count &&
                 (again.piece_digests == NULL) == (manifest.piece_digests == NULL) &&
                 (again.groups == NULL) == (manifest.groups == NULL) &&
                 str_equal(again.info.sources, manifest.info.sources),
             "an encoded manifest says the same");
        buffer_free(&out);
    } else {
        must(why != NULL, "a damaged manifest has a reason");
    }
    arena_free(&arena);
    free(text);
}

static void fuzz_generation(const uint8_t *data, size_t size)
{
    size_t length;
    char *text = sealed(data, size, &length);
    struct generation generation;
    const char *why = NULL;
    (void)generation_decode((struct str){text, length}, &generation, &why);
    free(text);
}

static void write_file(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    must(fd >= 0 && os_write_all(fd, data, size, NULL) == 0, "a file is written");
    close(fd);
}

/* Writes gen-000001/ckpt-000000000001 with the bytes as state.bin, in two pieces. */
static void make_checkpoint(const uint8_t *data, size_t size)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/gen-000001/ckpt-000000000001", root);
    must(os_mkdirs(path) == 0, "a directory");
    snprintf(path, sizeof(path), "%s/gen-000001/ckpt-000000000001/state.bin", root);
    write_file(path, data, size);
    uint64_t bytes;
    uint8_t *digests;
    must(digest_file(path, &bytes, &digests) == 0, "digests");
    uint32_t half = (uint32_t)size / 2;
    struct manifest_piece pieces[2] = {
        {.bytes = half, .group_max = SNAPSHOT_GLOBAL},
        {.offset = half, .bytes = (uint32_t)size - half, .group_max = SNAPSHOT_GLOBAL}};
    struct manifest_file file = {STR("state.bin"), bytes, digests};
    struct str part = STR("op/1/0");
    struct manifest manifest = {.info = {.id = {1, 1}, .format = CHECKPOINT_FORMAT},
                                .files = &file,
                                .files_count = 1,
                                .parts = &part,
                                .parts_count = 1,
                                .pieces = (const char *)pieces,
                                .pieces_count = 2};
    struct byte_buffer text = {0};
    manifest_encode(&manifest, &text);
    snprintf(path, sizeof(path), "%s/gen-000001/ckpt-000000000001/MANIFEST", root);
    write_file(path, text.data, text.length);
    buffer_free(&text);
    free(digests);
}

static void restore_all(struct checkpoint *checkpoint, uint32_t lane, struct diag_list *diags)
{
    struct state_store *store = state_store_open(NULL, 0, false, diags);
    struct placement placement;
    struct group_set groups;
    placement_ranges(&placement, LANES);
    placement_groups(&placement, lane, &groups);
    struct keyed_table *table = keyed_table_new(&(struct keyed_options){store, 1, 'k', 1 << 20, &groups});
    struct time_queue *queue =
        time_queue_new(&(struct time_queue_options){store, 1, 'q', 1 << 20, 1000, &groups});
    struct snapshot_reader *reader = checkpoint_reader(checkpoint, "op/1/", &groups, diags);
    uint32_t group;
    struct str record;
    bool is_good = true;
    while (is_good && snapshot_get(reader, &group, &record))
        is_good = record.length > 0 && record.data[0] == 'q'
                      ? time_queue_restore(queue, reader, record, 0, diags)
                      : keyed_table_restore(table, reader, record, diags);
    must(checkpoint_reader_close(reader) || diags->errors > 0, "whoever fails says why");
    struct time_record popped;
    while (time_queue_pop(queue, TIME_MAX, &popped))
        must(popped.time_us >= 0, "what had left does not come again");
    time_queue_free(queue);
    keyed_table_free(table);
    state_store_close(store);
}

static void fuzz_state(const uint8_t *data, size_t size)
{
    make_root();
    make_checkpoint(data, size);
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct checkpoint_dir *dir =
        checkpoint_dir_open(&(struct checkpoint_dir_options){.path = root, .read_only = true}, &diags);
    must(dir != NULL, "the directory opens");
    struct checkpoint *checkpoint = checkpoint_open(dir, (struct checkpoint_id){1, 1}, &diags);
    must(checkpoint != NULL, "the checkpoint opens");
    for (uint32_t lane = 0; lane < LANES; lane++)
        restore_all(checkpoint, lane, &diags);
    checkpoint_close(checkpoint);
    checkpoint_dir_close(dir);
    arena_free(&arena);
}

static void fuzz_row(const uint8_t *data, size_t size)
{
    struct type int_type = {.tag = TYPE_INT}, ints = {.tag = TYPE_LIST, .element = &int_type};
    struct arena arena = {0};
    struct schema empty = {0}, *record = schema_copy(&arena, &empty, 2),
                  *schema = schema_copy(&arena, &empty, 6);
    schema_add(record, STR("a"), type_of(TYPE_TEXT));
    schema_add(record, STR("b"), ints);
    struct type record_type = {.tag = TYPE_RECORD, .fields = record};
    schema_add(schema, STR("i"), type_of(TYPE_INT));
    schema_add(schema, STR("b"), type_of(TYPE_BOOL));
    schema_add(schema, STR("t"), type_of(TYPE_TEXT));
    schema_add(schema, STR("l"), ints);
    schema_add(schema, STR("r"), (struct type){.tag = TYPE_LIST, .element = &record_type});
    schema_add(schema, STR("f"), type_of(TYPE_FLOAT));
    struct batch_pool *pool = batch_pool_new();
    struct batch *batch = batch_new(pool, schema, 1);
    struct column_builder builders[6];
    const char *at = (const char *)data;
    bool is_good = true;
    for (uint32_t i = 0; i < schema->count; i++) {
        builder_init(&builders[i], batch, &batch->columns[i], schema->fields[i].type);
        is_good = is_good && builder_decode(&builders[i], 0, &at, (const char *)data + size);
    }
    for (uint32_t i = 0; i < schema->count; i++)
        builder_finish(&builders[i]);
    struct byte_buffer out = {0};
    for (uint32_t i = 0; is_good && i < schema->count; i++)
        row_encode_value(&out, &batch->columns[i], &schema->fields[i].type, 0);
    size_t used = (size_t)(at - (const char *)data);
    must(!is_good || (out.length == used && (used == 0 || memcmp(out.data, data, used) == 0)),
         "a decoded row encodes to the same bytes");
    buffer_free(&out);
    batch_release(batch);
    batch_pool_free(pool);
    arena_free(&arena);
}

/* A segment of an order log; its length and its digest are set right. */
static void fuzz_order(const uint8_t *data, size_t size)
{
    size_t length;
    char *text = sealed(data, size, &length);
    uint64_t bytes = size < ORDER_HEAD_BYTES ? 0 : size - ORDER_HEAD_BYTES;
    if (size >= ORDER_HEAD_BYTES) {
        memcpy(text, "leatord2", 8);
        memcpy(text + ORDER_HEAD_BYTES - sizeof(bytes), &bytes, sizeof(bytes));
        manifest_seal(text, length);
    }
    struct order_reader reader;
    struct order_entry entry;
    uint64_t entries = 0;
    if (order_open(&reader, (struct str){text, length}))
        while (order_next(&reader, &entry)) {
            entries++;
            must(entry.partition < ORDER_PARTITIONS_MAX, "a partition is within its bounds");
        }
    must(entries <= size, "an entry takes a byte at least");
    must(reader.why != NULL || reader.micro_batch == reader.head.next,
         "a good segment has the micro-batches of its head");
    order_close(&reader);
    free(text);
}

/* Cuts one of eight inputs, so that a length in it exceeds the bytes that are left by little. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    if (size > 2 && seed % 8 == 0)
        return 1 + seed / 8 % (size - 1);
    return LLVMFuzzerMutate(data, size, max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const targets[])(const uint8_t *data, size_t size) = {fuzz_manifest, fuzz_generation,
                                                                        fuzz_state, fuzz_row, fuzz_order};
    if (size > 0 && size < 1 << 16)
        targets[data[0] % ARRAY_COUNT(targets)](data + 1, size - 1);
    return 0;
}
