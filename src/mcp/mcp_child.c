/* See mcp_child.h. The command is the leader of a process group, so that killing it ends what it started, too; it gets
 * SIGTERM when the server dies. */
#include "mcp/mcp_child.h"
#include "base/clock.h"
#include "base/common.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child: nothing but what may follow fork. */
static void become(const char *program, char *const *argv, int out, int messages, pid_t parent)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent && null >= 0 && dup2(null, 0) == 0 && dup2(out, 1) == 1 && dup2(messages, 2) == 2)
        execv(program, argv);
    _exit(127);
}

int mr_mcp_child_start(const char *program, char *const *words, uint64_t patience_ns, struct mr_mcp_child *c,
                       struct mr_error *err)
{
    int out[2], messages[2];
    size_t n = 0;
    while (words[n])
        n++;
    char **argv = calloc(n + 2, sizeof(*argv));
    if (!argv)
        return mr_error_set(err, -ENOMEM, "cannot run the command");
    argv[0] = (char *)(uintptr_t)program;
    memcpy(argv + 1, words, n * sizeof(*argv));
    if (pipe2(out, O_CLOEXEC) < 0) {
        free(argv);
        return mr_error_set(err, -errno, "cannot run the command");
    }
    if (pipe2(messages, O_CLOEXEC) < 0) {
        int rc = mr_error_set(err, -errno, "cannot run the command");
        close(out[0]);
        close(out[1]);
        free(argv);
        return rc;
    }
    pid_t self = getpid(), pid = fork();
    if (pid == 0)
        become(program, argv, out[1], messages[1], self);
    int why = errno;
    if (pid > 0)
        setpgid(pid, pid);
    free(argv);
    close(out[1]);
    close(messages[1]);
    *c = (struct mr_mcp_child){.pid = pid, .out = out[0], .messages = messages[0], .patience_ns = patience_ns};
    if (pid > 0)
        return 0;
    close(out[0]);
    close(messages[0]);
    *c = (struct mr_mcp_child){.out = -1, .messages = -1};
    return mr_error_set(err, -why, "cannot run the command");
}

void mr_mcp_child_read(struct mr_mcp_child *c, int fd)
{
    char piece[16384];
    ssize_t n = read(fd, piece, sizeof piece);
    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0) {
        close(fd);
        *(fd == c->out ? &c->out : &c->messages) = -1;
        return;
    }
    struct mr_strbuf *to = fd == c->out ? &c->text : &c->said;
    size_t room = MR_MCP_OUTPUT_MOST - MR_MIN(to->len, (size_t)MR_MCP_OUTPUT_MOST);
    c->cut |= (size_t)n > room;
    mr_strbuf_add(to, piece, MR_MIN((size_t)n, room)); /* what is beyond is read, or the command would wait */
}

void mr_mcp_child_ask(struct mr_mcp_child *c)
{
    if (c->pid > 0 && !c->asked_ns) {
        c->asked_ns = mr_now_ns();
        kill(c->pid, SIGTERM);
    }
}

void mr_mcp_child_urge(struct mr_mcp_child *c)
{
    if (c->pid > 0 && c->asked_ns && mr_now_ns() - c->asked_ns > c->patience_ns)
        kill(-c->pid, SIGKILL);
}

bool mr_mcp_child_gone(struct mr_mcp_child *c)
{
    pid_t got = waitpid(c->pid, NULL, WNOHANG);
    return got == c->pid || (got < 0 && errno != EINTR);
}

int mr_mcp_child_wait(struct mr_mcp_child *c)
{
    int status = 0;
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR) {
    }
    c->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void mr_mcp_child_done(struct mr_mcp_child *c)
{
    mr_strbuf_done(&c->text);
    mr_strbuf_done(&c->said);
    *c = (struct mr_mcp_child){.out = -1, .messages = -1};
}
