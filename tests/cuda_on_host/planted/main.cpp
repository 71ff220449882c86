/* test_cuda_model_planted: checks for each case that the bug is reported with the expected text, and that
 * nothing is reported without the bug. NAME bug|good: runs only that case, in this process. */
#include <stdlib.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <vector>

#include "tests/cuda_on_host/planted/planted.h"

enum { SEEDS = 8 };

#if defined(__SANITIZE_ADDRESS__)
static const char *expected(const planted *bug)
{
    return bug->asan;
}
#elif defined(__SANITIZE_THREAD__)
static const char *expected(const planted *bug)
{
    return bug->tsan;
}
#else
static const char *expected(const planted *)
{
    return NULL;
}
#endif

static std::vector<const planted *> all_cases(void)
{
    std::vector<const planted *> cases;
    for (const planted *list :
         {planted_waits, planted_bounds, planted_order, planted_streams, planted_tables}) {
        for (; list->name != NULL; list++) {
            cases.push_back(list);
        }
    }
    return cases;
}

struct chosen {
    const planted *bug;
    bool has_bug;
};

static void run_once(void *context, cuda_model_output *output)
{
    const chosen *c = (const chosen *)context;
    planted_run run = {};
    run.has_bug = c->has_bug;
    cudaStreamCreateWithFlags(&run.stream, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&run.other, cudaStreamNonBlocking);
    cudaMalloc(&run.device, PLANTED_BYTES);
    cudaMallocHost(&run.pinned, PLANTED_BYTES);
    cudaMemsetAsync(run.device, 0, PLANTED_BYTES, run.stream);
    cudaStreamSynchronize(run.stream);
    for (int i = 0; i < PLANTED_WORDS; i++) {
        run.pinned[i] = 0;
    }
    uint32_t result[PLANTED_WORDS];
    c->bug->body(&run);
    cudaStreamSynchronize(run.stream);
    cudaStreamSynchronize(run.other);
    cudaMemcpyAsync(result, run.device, PLANTED_BYTES, cudaMemcpyDeviceToHost, run.stream);
    cudaStreamSynchronize(run.stream);
    cuda_model_add(output, result, sizeof(result));
    cuda_model_add(output, run.pinned, PLANTED_BYTES);
    cudaFreeHost(run.pinned);
    cudaFree(run.device);
    cudaStreamDestroy(run.other);
    cudaStreamDestroy(run.stream);
}

static int run_case(const std::string &name, bool has_bug)
{
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (const planted *bug : all_cases()) {
        if (name == bug->name) {
            chosen c = {bug, has_bug};
            return cuda_model_runs_agree(bug->name, run_once, &c, SEEDS) ? 0 : 1;
        }
    }
    return 2;
}

/* Runs a case in a process of its own; *said gets what it prints. */
static int run_apart(const char *program, const planted *bug, bool has_bug, std::string *said)
{
    const std::string command =
        std::string("'") + program + "' '" + bug->name + (has_bug ? "' bug 2>&1" : "' good 2>&1");
    FILE *pipe = popen(command.c_str(), "r");
    char part[4096];
    said->clear();
    for (size_t n; pipe != NULL && (n = fread(part, 1, sizeof(part), pipe)) > 0;) {
        said->append(part, n);
    }
    return pipe == NULL ? -1 : pclose(pipe);
}

static bool says(const std::string &said, std::string words)
{
    for (size_t bar; (bar = words.find('|')) != std::string::npos; words.erase(0, bar + 1)) {
        if (said.find(words.substr(0, bar)) != std::string::npos) {
            return true;
        }
    }
    return said.find(words) != std::string::npos;
}

/* Prints one TAP line, and the case's output if the result is wrong. */
static bool told(bool is_good, const char *what, const planted *bug, const std::string &said)
{
    printf("%sok - %s%s\n", is_good ? "" : "not ", bug->name, what);
    for (size_t at = 0, end; !is_good && at < said.size(); at = end + 1) {
        end = said.find('\n', at);
        end = end == std::string::npos ? said.size() : end;
        printf("#   %s\n", said.substr(at, end - at).c_str());
    }
    return is_good;
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        return run_case(argv[1], strcmp(argv[2], "bug") == 0);
    }
    /* Otherwise each of TSan's processes would sleep for a second at its end. */
    const char *options = getenv("TSAN_OPTIONS");
    setenv("TSAN_OPTIONS",
           ((options != NULL ? options : "") + std::string(":halt_on_error=1:atexit_sleep_ms=0")).c_str(), 1);
    bool all_good = true;
    std::string said;
    for (const planted *bug : all_cases()) {
        int status = run_apart(argv[0], bug, false, &said);
        all_good &= told(status == 0, ": not there, and nothing is told", bug, said);
        if (expected(bug) != NULL) {
            status = run_apart(argv[0], bug, true, &said);
            all_good &= told(status != 0 && says(said, expected(bug)), "", bug, said);
        }
    }
    return all_good ? 0 : 1;
}
