#include "unit/formats/registry.h"

#include "core/base.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void registry_open(struct registry *registry, const char *what)
{
    int in[2], out[2];
    char line[64];
    leat_assert(pipe(in) == 0 && pipe(out) == 0);
    registry->pid = fork();
    leat_assert(registry->pid >= 0);
    if (registry->pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[1]);
        close(out[0]);
        execlp("python3", "python3", LEAT_SOURCE_DIR "/tests/unit/formats/registry.py", what, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    registry->in = in[1];
    registry->out = fdopen(out[0], "r");
    leat_assert(registry->out != NULL && fgets(line, sizeof(line), registry->out) != NULL);
    snprintf(registry->url, sizeof(registry->url), "http://127.0.0.1:%d", atoi(line));
}

void registry_close(struct registry *registry, char *asked, size_t room)
{
    int status;
    close(registry->in);
    size_t length = fread(asked, 1, room - 1, registry->out);
    asked[length] = '\0';
    fclose(registry->out);
    waitpid(registry->pid, &status, 0);
}
