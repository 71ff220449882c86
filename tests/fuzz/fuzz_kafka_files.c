/* Arbitrary bytes as what the Kafka connector reads; the first byte chooses: the manifest of a recording, a
 * dead letter and headers, a token, the claims of a token. A manifest that can be read has no gaps between
 * its spans; headers are read back as they were written; the bytes of a letter can be read; a refused
 * token has a reason. */
#include "connectors/kafka/produce_letters.h"
#include "connectors/kafka/recording_form.h"
#include "connectors/kafka/recording_write.h"
#include "connectors/kafka/token.h"
#include "core/os.h"
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

static char root[64];

static void remove_root(void)
{
    (void)os_remove_tree(root);
}

/* Writes the bytes to manifest.json in `root`, with the one span file that a manifest here may name. */
static void make_recording(struct str bytes)
{
    char path[128];
    if (root[0] == '\0') {
        snprintf(root, sizeof(root), "%s/leat-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        must(mkdtemp(root) != NULL, "a temporary directory");
        atexit(remove_root);
        snprintf(path, sizeof(path), "%s/t", root);
        must(os_mkdirs(path) == 0, "a directory");
        snprintf(path, sizeof(path), "%s/t/a", root);
        int span = open(path, O_WRONLY | O_CREAT, 0666);
        must(span >= 0 && os_write_all(span, "0123456789", 10, NULL) == 0, "a span");
        close(span);
    }
    snprintf(path, sizeof(path), "%s/manifest.json", root);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    must(fd >= 0 && os_write_all(fd, bytes.data, bytes.length, NULL) == 0, "a manifest is written");
    close(fd);
}

static bool read_recording(struct recording *recording, struct arena *arena, struct diag_list *diags)
{
    struct str path = str_from(root);
    return recording_open(recording, &path, 1, NULL, 0, arena, diags);
}

static void check_partition(const struct recording_partition *p)
{
    int64_t reach = p->first;
    must(p->first <= p->next && p->id >= 0, "a partition ends behind its beginning");
    for (uint32_t i = 0; i < p->spans_count; i++) {
        const char *file = p->spans[i].file;
        must(p->spans[i].first <= reach, "no hole between spans");
        must(file == NULL || (file[0] != '/' && strstr(file, "..") == NULL), "a span lies in the directory");
        reach = MAX(reach, p->spans[i].next);
    }
    must(reach <= p->next, "spans lie in their partition");
}

static void fuzz_manifest(struct str bytes)
{
    struct arena arena = {.block_bytes = 4096};
    struct diag_list diags;
    struct recording recording;
    diag_list_init(&diags, &arena);
    make_recording(bytes);
    if (read_recording(&recording, &arena, &diags)) {
        must(diags.errors == 0, "what is read has no errors");
        for (uint32_t i = 0; i < recording.partitions_count; i++)
            check_partition(&recording.partitions[i]);
    } else {
        must(diags.errors > 0, "what cannot be read has a reason");
    }
    arena_free(&arena);
}

static void fuzz_letter(struct str bytes)
{
    struct arena arena = {.block_bytes = 4096};
    struct letter letter;
    const char *why = letter_read(bytes, &arena, &letter);
    struct byte_buffer out = {0};
    if (why == NULL) {
        /* Reads every byte of the letter. */
        buffer_append(&out, letter.topic.data, letter.topic.length);
        buffer_append(&out, letter.key.data, letter.key.length);
        buffer_append(&out, letter.raw.data, letter.raw.length);
        buffer_append(&out, letter.headers.data, letter.headers.length);
    }
    buffer_clear(&out);
    struct str headers, again;
    if (recorded_take_headers(bytes, &arena, &headers) && headers.length > 0) { /* no headers: not written */
        recorded_put_headers(headers, &out);
        struct str written = {out.data, out.length};
        must(recorded_take_headers(arena_str(&arena, written), &arena, &again) && str_equal(headers, again),
             "headers come back");
    }
    buffer_free(&out);
    arena_free(&arena);
}

static void fuzz_token(struct str bytes)
{
    int64_t ends_ms = 0;
    char subject[16];
    const char *why = NULL;
    if (kafka_token_parse(bytes, &ends_ms, subject, sizeof(subject), &why))
        must(strlen(subject) < sizeof(subject), "a subject fits");
    else
        must(why != NULL, "what is no token has a reason");
}

/* The claims of a token are JSON in base64: the bytes are encoded here, so that the JSON is fuzzed. */
static void fuzz_claims(struct str bytes)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    struct byte_buffer out = {0};
    buffer_append(&out, "e30.", 4);
    for (size_t i = 0; i < bytes.length; i += 3) {
        uint32_t word = 0, left = (uint32_t)MIN(bytes.length - i, (size_t)3);
        for (uint32_t k = 0; k < 3; k++)
            word = word << 8 | (k < left ? (uint8_t)bytes.data[i + k] : 0);
        for (uint32_t k = 0; k <= left; k++)
            buffer_append(&out, &letters[word >> (18 - 6 * k) & 63], 1);
    }
    buffer_append(&out, ".c2ln", 5);
    fuzz_token((struct str){out.data, out.length});
    buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    uint8_t what = fuzz_byte(&input);
    struct str bytes = fuzz_take(&input, size);
    switch (what & 3) {
    case 0: fuzz_manifest(bytes); break;
    case 1: fuzz_letter(bytes); break;
    case 2: fuzz_token(bytes); break;
    default: fuzz_claims(bytes); break;
    }
    free((char *)(uintptr_t)bytes.data);
    return 0;
}
