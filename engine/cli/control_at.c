#include "cli/control_at.h"

#include "cli/token.h"
#include "control/api_key.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char HTTP[] = "http://", HTTPS[] = "https://";

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* HOST:PORT, which is often given in place of a URL, and is no file. */
static bool is_address(const char *word)
{
    const char *colon = strrchr(word, ':');
    return colon != NULL && colon != word && colon[1] != '\0' &&
           strspn(colon + 1, "0123456789") == strlen(colon + 1) && strchr(word, '/') == NULL &&
           access(word, F_OK) != 0;
}

bool control_at_find(struct control_at *at, bool *is_bad_job)
{
    struct stat about;
    struct diag_list *diags = &at->load.diags;
    *is_bad_job = false;
    at->is_url = begins(at->word, HTTP) || begins(at->word, HTTPS);
    bool is_directory = !at->is_url && stat(at->word, &about) == 0 && S_ISDIR(about.st_mode);
    if (at->is_url || is_directory) {
        diag_list_init(diags, &at->load.arena);
        at->directory = str_from(at->word);
        return true;
    }
    if (is_address(at->word)) {
        diag_list_init(diags, &at->load.arena);
        struct diag *d =
            diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                       "expected a URL, a job file or a checkpoint directory, found `%s`", at->word);
        diag_hint(diags, d, "a URL begins with its scheme: http://%s", at->word);
        return false;
    }
    at->load.path = at->word;
    if (!job_load(&at->load)) {
        *is_bad_job = true;
        return false;
    }
    at->directory = at->load.plan->config.checkpoint.directory;
    if (at->directory.length > 0)
        return true;
    struct diag *d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0},
                                "the job has no `checkpoint`, beside which a run says where it is");
    diag_hint(diags, d,
              "name the run by its address, as `leat run --control` was given it: http://127.0.0.1:8081; "
              "a run without checkpoints is stopped with Ctrl-C");
    return false;
}

/* The HOST:PORT of a URL; false after a diagnostic. */
static bool parse_url(const struct control_at *at, struct str *address, struct diag_list *diags)
{
    bool is_tls = begins(at->word, HTTPS);
    *address = str_from(at->word + strlen(is_tls ? HTTPS : HTTP));
    if (address->length > 0 && address->data[address->length - 1] == '/')
        address->length--;
    struct diag *d = NULL;
    if (address->length == 0 || memchr(address->data, '/', address->length) != NULL ||
        memchr(address->data, '@', address->length) != NULL) {
        d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "expected http://HOST:PORT, found `%s`",
                       at->word);
        diag_hint(diags, d, "give the address alone, without path and user");
    } else if (is_tls && at->authority == NULL) {
        d = diag_error(diags, DIAG_NO_COMMAND, (struct span){0}, "https:// needs --authority");
        diag_hint(diags, d,
                  "give the authority that signed the run's certificate, or that certificate itself");
    }
    return d == NULL;
}

struct fetch *control_at_connect(const struct control_at *at, struct diag_list *diags)
{
    struct api_key key = {0};
    struct fetch_options options = {0};
    struct fetch *fetch = NULL;
    char *token = NULL;
    bool is_good = at->is_url ? parse_url(at, &options.address, diags) &&
                                    token_read("--token-file", at->token_file, &token, diags)
                              : api_key_read(at->directory, &key, diags);
    if (is_good && at->is_url) {
        options.authority = begins(at->word, HTTPS) ? at->authority : NULL;
        options.token = token;
    } else if (is_good) {
        options.address = str_from(key.address);
        options.authority = key.certificate == NULL ? NULL
                            : at->authority != NULL ? at->authority
                                                    : key.certificate;
        options.token = key.token;
    }
    if (is_good)
        fetch = fetch_new(&options, diags);
    api_key_free(&key);
    free(token);
    return fetch;
}

bool control_at_is_other(int status)
{
    return status == 404 || status == 405 || status == 501;
}

void control_at_free(struct control_at *at)
{
    job_free(&at->load);
}
